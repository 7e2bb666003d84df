# Plain Python values as cells: exact built-in types (int, float, bool, str, bytes, date, datetime) that fit
# the column as they are.  Of everything else the functions say that it is not plain, and the general path
# decides.
#
# A module that uses this file calls ``import_datetime`` first.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.datetime cimport (
    PyDate_CheckExact,
    PyDateTime_CheckExact,
    PyDateTime_DATE_GET_HOUR,
    PyDateTime_DATE_GET_MICROSECOND,
    PyDateTime_DATE_GET_MINUTE,
    PyDateTime_DATE_GET_SECOND,
    PyDateTime_GET_DAY,
    PyDateTime_GET_MONTH,
    PyDateTime_GET_YEAR,
    datetime_tzinfo,
    get_utc,
)
from cpython.float cimport PyFloat_AS_DOUBLE
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from kudu_core._ext.row.shape cimport BOOL, BYTES, DATE, FLOAT, SIGNED, TEXT, TIME, TIME_UTC, UNSIGNED

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object number) except? 0xFFFFFFFFFFFFFFFF


cdef inline int64_t _days(int64_t year, int64_t month, int64_t day) noexcept nogil:
    """Days since 1970 of a date."""
    cdef int64_t era, yoe, doy
    year -= month <= 2
    era = year / 400            # years are 1 .. 9999, so never negative
    yoe = year - era * 400
    doy = (153 * (month - 3 if month > 2 else month + 9) + 2) / 5 + day - 1
    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468


cdef inline bint _integer_of(int tag, int width, object value, uint64_t* word) except -1:
    cdef:
        int overflow = 0
        long long number
        int64_t low
    if type(value) is not int:
        return False
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        if overflow < 0 or tag == SIGNED or width < 8:
            return False
        try:
            word[0] = PyLong_AsUnsignedLongLong(value)
        except OverflowError:
            return False
        return True
    word[0] = <uint64_t>number
    if tag == UNSIGNED:
        return number >= 0 and (width == 8 or number >> (8 * width) == 0)
    if width == 8:
        return True
    low = <int64_t>1 << (8 * width - 1)
    return -low <= number < low


cdef inline bint _float_of(int width, object value, uint64_t* word) except -1:
    cdef:
        double real
        float single
    if type(value) is not float:
        return False
    real = PyFloat_AS_DOUBLE(value)
    if width == 8:
        memcpy(word, &real, 8)
        return True
    single = <float>real
    if single != single or (single - single != 0 and real - real == 0):
        return False            # NaN, or finite and too large
    memcpy(word, &single, 4)
    return True


cdef inline uint64_t _days_of(object value) noexcept:
    return <uint64_t>_days(
        PyDateTime_GET_YEAR(value), PyDateTime_GET_MONTH(value), PyDateTime_GET_DAY(value)
    )


cdef inline uint64_t _microseconds_of(object value) noexcept:
    return (
        _days_of(value) * <uint64_t>86400000000
        + PyDateTime_DATE_GET_HOUR(value) * <uint64_t>3600000000
        + PyDateTime_DATE_GET_MINUTE(value) * <uint64_t>60000000
        + PyDateTime_DATE_GET_SECOND(value) * <uint64_t>1000000
        + <uint64_t>PyDateTime_DATE_GET_MICROSECOND(value)
    )


cdef inline bint number_of(int tag, int width, object value, uint64_t* word) except -1:
    """Whether ``value`` is of the exact type and in range; ``word`` is then its two's complement."""
    word[0] = 0
    if tag == SIGNED or tag == UNSIGNED:
        return _integer_of(tag, width, value, word)
    if tag == FLOAT:
        return _float_of(width, value, word)
    if tag == BOOL:
        word[0] = value is True
        return type(value) is bool
    if tag == DATE:
        if not PyDate_CheckExact(value):
            return False
        word[0] = _days_of(value)
        return True
    if tag == TIME or tag == TIME_UTC:
        if not PyDateTime_CheckExact(value) or datetime_tzinfo(value) is not (
            get_utc() if tag == TIME_UTC else None
        ):
            return False
        word[0] = _microseconds_of(value)
        return True
    return False


cdef inline bint bytes_of(int tag, object value, const uint8_t** data, Py_ssize_t* size) except -1:
    """Whether ``value`` is exact text or bytes; ``data`` then points into it."""
    if tag == TEXT:
        if type(value) is not str:
            return False
        try:
            data[0] = <const uint8_t*>PyUnicode_AsUTF8AndSize(value, size)
        except UnicodeEncodeError:
            return False
        return True
    if tag == BYTES and type(value) is bytes:
        data[0] = <const uint8_t*>PyBytes_AS_STRING(value)
        size[0] = PyBytes_GET_SIZE(value)
        return True
    return False
