"""The set of intervals that is worth most: what they are worth together, less what they span.

Each interval has a value and a weight; a set may weigh up to the budget, and its score is the sum of the
values less ``adjust`` times the distance from its lowest end to its highest.  With the interval that lies
lowest given, the rest is a 0/1 knapsack over the intervals by their upper ends: after each the best sum
is known, and so is what it spans.

First a bound for every lowest interval (the knapsack whose last item may be cut), then the exact tables,
the most promising first, until no bound is above what was found.
"""
import numpy as np

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc

cdef enum:
    MAX_BUDGET = 1 << 16

cdef double EPSILON = 1e-12


cdef struct Item:
    double value, density
    int64_t weight


cdef struct Heap:
    Item* items             # the least dense one first
    int64_t count
    double value
    int64_t weight, capacity


cdef struct Sets:
    const double* low
    const double* high
    const double* value
    const int64_t* weight
    int64_t count, budget
    double adjust


cdef struct KnapsackSearch:
    # What is looked for, and the best set found so far: its score, its lowest and its last interval.
    double best, tolerance
    int64_t work
    int64_t left, last
    bint exact              # whether nothing was left out that could be better


cdef void _sink(Item* items, int64_t count, int64_t at) noexcept nogil:
    cdef:
        int64_t child
        Item moved = items[at]
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and items[child + 1].density < items[child].density:
            child += 1
        if moved.density <= items[child].density:
            break
        items[at] = items[child]
        at = child
    items[at] = moved


cdef void _rise(Item* items, int64_t at) noexcept nogil:
    cdef:
        int64_t parent
        Item moved = items[at]
    while at and items[(at - 1) // 2].density > moved.density:
        parent = (at - 1) // 2
        items[at] = items[parent]
        at = parent
    items[at] = moved


cdef bint _offer(Heap* heap, double value, int64_t weight) noexcept nogil:
    """Add what may belong to the densest; whether anything changed."""
    cdef double density = value / weight
    if weight > heap.capacity or value <= 0:
        return False
    if heap.weight >= heap.capacity and density <= heap.items[0].density:
        return False
    heap.items[heap.count].value = value
    heap.items[heap.count].weight = weight
    heap.items[heap.count].density = density
    heap.count += 1
    heap.value += value
    heap.weight += weight
    _rise(heap.items, heap.count - 1)
    while heap.weight - heap.items[0].weight >= heap.capacity:
        heap.value -= heap.items[0].value
        heap.weight -= heap.items[0].weight
        heap.count -= 1
        heap.items[0] = heap.items[heap.count]
        _sink(heap.items, heap.count, 0)
    return True


cdef double _at_most(const Heap* heap) noexcept nogil:
    """No choice of whole items is worth more."""
    cdef int64_t excess = heap.weight - heap.capacity
    if excess <= 0:
        return heap.value
    return heap.value - heap.items[0].value * excess / heap.items[0].weight


cdef double _at_least(const Heap* heap) noexcept nogil:
    """Some choice of whole items is worth so much."""
    cdef double without
    if heap.weight <= heap.capacity:
        return heap.value
    without = heap.value - heap.items[0].value
    return without if without > heap.items[0].value else heap.items[0].value


cdef int64_t _first_reaching(const Sets* sets, double low) noexcept nogil:
    """The first interval whose upper end is not below ``low``."""
    cdef int64_t a = 0, b = sets.count, middle
    while a < b:
        middle = (a + b) >> 1
        if sets.high[middle] < low:
            a = middle + 1
        else:
            b = middle
    return a


cdef double _bound(
    const Sets* sets, int64_t left, Heap* heap, double most, double* best, int64_t* reach
) noexcept nogil:
    """A score that no set with ``left`` as its lowest interval exceeds, or one at or below ``best``.

    ``best`` rises to what some set is known to score; after ``reach`` no set can be better.
    """
    cdef:
        double low = sets.low[left], edge = sets.high[left], bound = -1e300, score
        double own = sets.value[left], upper = 0, lower = 0
        int64_t j
        bint changed = True
    reach[0] = -1
    heap.count = heap.weight = 0
    heap.value = 0
    heap.capacity = sets.budget - sets.weight[left]
    if heap.capacity < 0:
        return bound
    for j in range(_first_reaching(sets, low), sets.count):
        if sets.high[j] > edge:
            edge = sets.high[j]
            if most - sets.adjust * (edge - low) <= best[0]:
                break
        if j != left and sets.low[j] >= low and _offer(heap, sets.value[j], sets.weight[j]):
            changed = True
        # An interval that ends below the edge is free to use: look when the last of them is in.
        if sets.high[j] < edge or (j + 1 < sets.count and sets.high[j + 1] == edge):
            continue
        if changed:
            changed = False
            upper = own + _at_most(heap)
            lower = own + _at_least(heap)
        score = upper - sets.adjust * (edge - low)
        if score > best[0]:
            reach[0] = j  # also where the bound has no use for the interval: the best set may have
        if score > bound:
            bound = score
        score = lower - sets.adjust * (edge - low)
        if score > best[0]:
            best[0] = score
    return bound


cdef int64_t _table(
    const Sets* sets, int64_t left, int64_t reach, double* sums, double* best, int64_t* cells
) noexcept nogil:
    """Raise ``best``; the last interval of the set that scores it, -1 where none is better."""
    cdef:
        double low = sets.low[left], edge = sets.high[left], own = sets.value[left], score, value
        int64_t capacity = sets.budget - sets.weight[left], found = -1, j, w, weight
        double* now = sums
        double* then = sums + sets.budget + 1
        double* swap
    for w in range(capacity + 1):
        now[w] = 0
    for j in range(_first_reaching(sets, low), reach + 1):
        weight, value = sets.weight[j], sets.value[j]
        if sets.high[j] > edge:
            edge = sets.high[j]
        if j != left and sets.low[j] >= low and weight <= capacity and value > 0:
            for w in range(weight):
                then[w] = now[w]
            for w in range(capacity + 1 - weight):
                then[w + weight] = (
                    now[w] + value if now[w] + value > now[w + weight] else now[w + weight]
                )
            swap = now
            now = then
            then = swap
            cells[0] += capacity
        score = own + now[capacity] - sets.adjust * (edge - low)
        if score > best[0]:
            best[0] = score
            found = j
    return found


cdef bint _trace(
    const Sets* sets, int64_t left, int64_t last, double* sums, uint8_t* picked
) noexcept nogil:
    """Mark the intervals of the set that ``_table`` found; False when there is no memory for it."""
    cdef:
        double low = sets.low[left], value
        int64_t capacity = sets.budget - sets.weight[left], first = _first_reaching(sets, low), j, w
        int64_t row = capacity // 8 + 1
        int64_t rows = last - first + 1
        uint8_t* taken = <uint8_t*>calloc(<size_t>(rows if rows > 0 else 1), <size_t>row)
        uint8_t* mine
    if taken == NULL:
        return False
    for w in range(capacity + 1):
        sums[w] = 0
    for j in range(first, last + 1):
        if j == left or sets.low[j] < low or sets.weight[j] > capacity or sets.value[j] <= 0:
            continue
        mine = taken + (j - first) * row
        value = sets.value[j]
        w = capacity
        while w >= sets.weight[j]:
            if sums[w - sets.weight[j]] + value > sums[w]:
                sums[w] = sums[w - sets.weight[j]] + value
                mine[w >> 3] |= <uint8_t>(1 << (w & 7))
            w -= 1
    picked[left] = 1
    w, j = capacity, last
    while j >= first:
        if taken[(j - first) * row + (w >> 3)] >> (w & 7) & 1:
            picked[j] = 1
            w -= sets.weight[j]
        j -= 1
    free(taken)
    return True


cdef int64_t _bounds(
    const Sets* sets, Heap* heap, double floor, double* bounds, int64_t* reaches
) noexcept nogil:
    """The bound of every interval as the lowest; returns the one with the best known score, or -1."""
    cdef:
        int64_t i, start = -1
        double best = floor, before, most
    heap.count = heap.weight = 0
    heap.value = 0
    heap.capacity = sets.budget
    for i in range(sets.count):
        _offer(heap, sets.value[i], sets.weight[i])
    most = _at_most(heap)
    for i in range(sets.count):
        before = best
        bounds[i] = _bound(sets, i, heap, most, &best, reaches + i)
        if best > before:
            start = i
    return start


cdef void _search(
    const Sets* sets, KnapsackSearch* search, const int64_t* order, int64_t start, const double* bounds,
    const int64_t* reaches, double* sums,
) noexcept nogil:
    """Look at the lowest intervals in ``order``, but ``start`` first (-1: none), until none can be better."""
    cdef:
        int64_t i, left, last, cells = 0
        bint enough
    search.left = search.last = -1
    search.exact = True
    if start >= 0:
        last = _table(sets, start, reaches[start], sums, &search.best, &cells)
        if last >= 0:
            search.left, search.last = start, last
    for i in range(sets.count):
        left = order[i]
        enough = bounds[left] <= search.best * (1 + EPSILON) + EPSILON
        if not enough and cells > search.work and bounds[left] <= search.best * search.tolerance:
            enough, search.exact = True, False
        if enough:
            break
        if left == start:
            continue
        last = _table(sets, left, reaches[left], sums, &search.best, &cells)
        if last >= 0:
            search.left, search.last = left, last


cdef int _check(
    const double[::1] low, const double[::1] high, const double[::1] value, const int64_t[::1] weight,
    int64_t budget, double adjust, double floor, double tolerance,
) except -1:
    """ValueError for arguments that break a rule of ``choose``."""
    cdef:
        int64_t count = low.shape[0], i
        double finite
    if high.shape[0] != count or value.shape[0] != count or weight.shape[0] != count:
        raise ValueError(f"{count} lower ends, {high.shape[0]} upper, {value.shape[0]} values")
    if not 1 <= budget <= MAX_BUDGET or not adjust >= 0 or not tolerance >= 1 or not floor >= 0:
        raise ValueError(f"budget {budget}, adjust {adjust}, floor {floor}, tolerance {tolerance}")
    for i in range(count):
        finite = low[i] + high[i] + value[i]
        if finite - finite != 0 or not low[i] <= high[i] or weight[i] < 1 or value[i] < 0:
            raise ValueError(f"interval {i}: {low[i]} to {high[i]}, value {value[i]}, weight {weight[i]}")
        if i and high[i] < high[i - 1]:
            raise ValueError("upper ends descend")
    return 0


def choose(
    const double[::1] low not None,
    const double[::1] high not None,
    const double[::1] value not None,
    const int64_t[::1] weight not None,
    int64_t budget,
    double adjust,
    double floor,
    double tolerance,
    int64_t work,
):
    """The set that scores most: (score, indices ascending, whether none can be better).

    Parameters
    ----------
    low, high : (n,)
        Ends of the intervals; ``high`` ascending, ``low <= high``.
    value, weight : (n,)
        ``weight`` at least 1.
    budget
        1 to 65,536: what a set may weigh.
    adjust
        What a unit of span costs; at least 0.
    floor
        A set that does not score more than this is not told: (0.0, [], True).
    tolerance
        At least 1: after ``work``, sets with a bound below ``tolerance`` times the best are not looked at.
    work
        Cells of the tables.

    ValueError for arguments that break one of these rules, MemoryError.
    """
    cdef:
        Sets sets
        Heap heap
        KnapsackSearch search
        int64_t count = low.shape[0], start = -1
        double[::1] bounds
        int64_t[::1] reaches, order
        uint8_t[::1] picked
        double* sums = NULL
        bint enough
    _check(low, high, value, weight, budget, adjust, floor, tolerance)
    none = np.empty(0, np.int64)
    if not count:
        return 0.0, none, True
    bounds = bound_array = np.empty(count, np.float64)
    reaches = np.empty(count, np.int64)
    sets.low, sets.high, sets.value, sets.weight = &low[0], &high[0], &value[0], &weight[0]
    sets.count, sets.budget, sets.adjust = count, budget, adjust
    heap.items = <Item*>malloc((<size_t>count + 1) * sizeof(Item))
    sums = <double*>malloc(2 * (<size_t>budget + 1) * sizeof(double))
    try:
        if heap.items == NULL or sums == NULL:
            raise MemoryError
        with nogil:
            start = _bounds(&sets, &heap, floor, &bounds[0], &reaches[0])
        if start < 0 and bound_array.max() <= floor:
            return 0.0, none, True
        # The one with the best known score first: whatever is cut short later, that is found.
        order = np.argsort(-bound_array, kind="stable").astype(np.int64)
        search.best, search.work, search.tolerance = floor, work, tolerance
        with nogil:
            _search(&sets, &search, &order[0], start, &bounds[0], &reaches[0], sums)
        if search.left < 0:
            return 0.0, none, bool(search.exact)
        picked = picked_array = np.zeros(count, np.uint8)
        with nogil:
            enough = _trace(&sets, search.left, search.last, sums, &picked[0])
        if not enough:
            raise MemoryError
    finally:
        free(heap.items)
        free(sums)
    return search.best, np.flatnonzero(picked_array), bool(search.exact)
