"""Which strings are URLs of stores, and what is said of those that are not."""

from __future__ import annotations

import pytest

import kudu_core as kc
from kudu_core.objects.urls import SCHEMES, StoreUrl, is_url, parse


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("s3://bucket", StoreUrl("s3", "bucket", "")),
        ("s3://bucket/", StoreUrl("s3", "bucket", "")),
        ("S3://my.Bucket_1/a/b=1/c d/", StoreUrl("s3", "my.Bucket_1", "a/b=1/c d")),
        ("gs://bucket-1/t", StoreUrl("gs", "bucket-1", "t")),
        ("az://container/t", StoreUrl("az", "container", "t")),
        (
            "abfss://box@account.dfs.core.windows.net/t/u",
            StoreUrl("abfss", "box", "t/u", "account.dfs.core.windows.net"),
        ),
        ("hdfs://nn1.local:8020/t", StoreUrl("hdfs", "nn1.local:8020", "t")),
        ("hdfs://ha/t", StoreUrl("hdfs", "ha", "t")),
    ],
)
def test_urls_of_stores(text: str, url: StoreUrl) -> None:
    assert is_url(text) and parse(text) == url
    assert parse(str(url)) == url, "and back"


def test_the_examples_in_messages_are_urls() -> None:
    for scheme, example in SCHEMES.items():
        assert parse(example).scheme == scheme


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s4://x", r"no scheme 's4'; there are s3://, gs://"),
        ("http://bucket/x", r"no scheme 'http'"),
        ("://x", r"no scheme ''"),
        ("s3a://bucket/x", r"here such a store is called s3: s3://bucket/folder"),
        ("wasbs://c@a.blob.core.windows.net/x", r"is called abfss"),
        ("file:///data/t", r"give a folder of this machine without its scheme: /data/t"),
        ("s3:///x", r"names no s3 bucket"),
        ("s3://", r"names no s3 bucket"),
        ("s3://b/x", r"names no s3 bucket"),
        ("gs://Bucket/x", r"names no gs bucket"),
        ("abfss://box/x", r"names no abfss bucket.*abfss://container@account"),
        ("hdfs:///x", r"names no hdfs bucket"),
        ("hdfs://nn:port/x", r"names no hdfs bucket"),
        ("s3://bucket//x", r"'' for a name"),
        ("s3://bucket/a/../b", r"'\.\.' for a name"),
        ("s3://bucket/a?b=c", r"'a\?b=c' for a name"),
        ("s3://bucket/a\nb", r"for a name"),
        ("s3://bucket/ a", r"for a name"),
        ("s3:/bucket/x", r"pathlib takes one away"),
        ("GS:/bucket", r"pathlib takes one away"),
        ("/data/a://b", r"is no URL"),
        ("a:b://c", r"is no URL"),
    ],
)
def test_what_is_no_url_of_a_store(text: str, message: str) -> None:
    assert is_url(text), "and no path of the machine either"
    with pytest.raises(kc.InvalidArgument, match=message):
        parse(text)


def test_a_password_is_not_repeated() -> None:
    for text in ("s3://me:secret@bucket/x", "s4://me:secret@bucket/x", "s3a://me:secret@bucket/x"):
        with pytest.raises(kc.InvalidArgument) as raised:
            parse(text)
        assert "secret" not in str(raised.value)


@pytest.mark.parametrize("text", ["/data/t", "t", "./s3", "s3", "C:/x", "a:b", "s3:", "x/s3:/y", "s3a/b"])
def test_paths_of_the_machine(text: str) -> None:
    assert not is_url(text)
