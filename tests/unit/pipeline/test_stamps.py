"""Time stamps of every layout we know, and those that can't be read."""

from __future__ import annotations

import pytest

from headgate.pipeline.logs.time_stamps import StampError, StampReader, sniff_nanos, zone_of

SECOND = 1_729_851_330_000.0  # 2024-10-25T10:15:30Z


@pytest.mark.parametrize(
    ("prefix", "ms"),
    [
        (b"[2024-10-25 10:15:30,123] DEBUG ", 123.0),
        (b"[2024-10-25 10:15:30.123] DEBUG ", 123.0),
        (b"[2024-10-25T10:15:30,123] DEBUG ", 123.0),
        (b"2024-10-25T10:15:30.123456Z DEBUG ", 123.456),
        (b"2024-10-25 12:15:30,123+0200 ", 123.0),
        (b"2024-10-25T05:15:30.123-05:00 [x] ", 123.0),
        (b"[2024-10-25 10:15:30] ", 0.0),
        (b"[2024-10-25 10:15:30,123456789] ", 123.456789),
        (b"25 Oct 2024 10:15:30,123 DEBUG ", 123.0),
        (b"25/Oct/2024:10:15:30,123 ", 123.0),
        (b"2024/10/25 10:15:30.5 ", 500.0),
        (b"20241025101530123 DEBUG ", 123.0),
        (b"20241025T101530,123 DEBUG ", 123.0),
        (b"1729851330123 DEBUG ", 123.0),
        (b"1729851330 DEBUG ", 0.0),
        (b"1729851330.123 DEBUG ", 123.0),
        (b"1729851330123456 ", 123.456),
        (b"1729851330123456789 ", 123.456789),
        # a container runtime's own stamp stands in front of the logger's
        (b"2024-10-25T11:11:11.000000001Z stdout F [2024-10-25 10:15:30,123] DEBUG ", 123.0),
        (b"Oct 25 10:15:31 host kafka[7]: [2024-10-25 10:15:30,123] ", 123.0),
        (b"<134>1 2024-10-25T10:15:31.003Z h kafka - - - [2024-10-25 10:15:30,123] DEBUG ", 123.0),
        # numbers behind it that could be a time of day
        (b"[2024-10-25 10:15:30,123] DEBUG [pid 101531] ", 123.0),
        (b"2024-10-25 10:15:30,123 [worker 111213-22:10:09] DEBUG ", 123.0),
        (b"1729851330123 DEBUG [thread 12:13:14] ", 123.0),
        (b"\xef\xbb\xbf[2024-10-25 10:15:30,123] DEBUG ", 123.0),
        (b"\x00\x00\x00[2024-10-25 10:15:30,123] DEBUG ", 123.0),
        (b"25.10.2024 10:15:30,123 DEBUG ", 123.0),
        (b"10/25/2024 10:15:30.123 AM DEBUG ", 123.0),
        (b"25-10-2024 10:15:30 am ", 0.0),
        (b"[2024-10-25 10:15:30,123 UTC] DEBUG ", 123.0),
        (b"[2024-10-25 02:15:30,123-08] DEBUG ", 123.0),
        (b"[2024-10-25 10:15:30,123] AUDIT ", 123.0),
        # zones as Java prints those without a name, and by region
        (b"[2024-10-25 12:15:30,123 GMT+02:00] DEBUG ", 123.0),
        (b"2024-10-25 02:15:30,123 UTC-08:00 DEBUG ", 123.0),
        (b"2024-10-25 12:15:30,123 GMT+2 DEBUG ", 123.0),
        (b"[2024-10-25 07:15:30,123 -03] DEBUG ", 123.0),
        (b"[2024-10-25 12:15:30,123 Europe/Berlin] DEBUG ", 123.0),
        (b"[2024-10-25T12:15:30,123+02:00[Europe/Berlin]] DEBUG ", 123.0),
        (b"[2024-10-25 10:15:30,123 Kafka/request] DEBUG ", 123.0),
        (b"2024.10.25 10:15:30,123 DEBUG ", 123.0),
        (b"[2024-10-25  10:15:30,123] DEBUG ", 123.0),
        (b"[2024-10-25_10:15:30,123] DEBUG ", 123.0),
        (b"[2024-10-25, 10:15:30,123] DEBUG ", 123.0),
        (b"Oct 25, 2024 10:15:30.123 AM DEBUG ", 123.0),
        (b"Oct 25 2024 10:15:30,123 DEBUG ", 123.0),
        (b"Fri Oct 25 10:15:30 UTC 2024 DEBUG ", 0.0),
        (b"2024-10-25 11:15:30,123 2024-10-25 10:15:30,123 DEBUG ", 123.0),
    ],
)
def test_layouts(prefix: bytes, ms: float) -> None:
    reader = StampReader()
    assert reader.read(prefix) - SECOND == pytest.approx(ms, abs=1e-3)
    assert reader.read(prefix) - SECOND == pytest.approx(ms, abs=1e-3)  # and from memory


def test_unpadded_nanoseconds_of_log4j2() -> None:
    head = b"[2024-10-25 10:15:30,7142551] DEBUG {\n[2024-10-25 10:15:30,224459177] DEBUG {\n"
    assert sniff_nanos(head)
    reader = StampReader(nanos=True)
    for digits, ms in ((b"7142551", 7.142551), (b"712", 0.000712), (b"224459177", 224.459177)):
        got = reader.read(b"[2024-10-25 10:15:30,%s] " % digits)
        assert got - SECOND == pytest.approx(ms, abs=1e-3)


def test_three_and_six_digits_are_decimal_fractions() -> None:
    assert not sniff_nanos(b"[2024-10-25 10:15:30,123] DEBUG {\n" * 20)
    assert not sniff_nanos(b"[2024-10-25 10:15:30.123456] DEBUG {\n" * 20)
    assert not sniff_nanos(b"2024-10-25T10:15:30.123456789Z stdout F [2024-10-25 10:15:30,1] {")


def test_the_brokers_zone_counts_where_the_stamp_has_none() -> None:
    berlin = StampReader(zone_of("Europe/Berlin"))
    assert berlin.read(b"[2024-10-25 12:15:30,123] ") == SECOND + 123
    assert StampReader(zone_of("+02:00")).read(b"[2024-10-25 12:15:30,123] ") == SECOND + 123
    assert berlin.read(b"[2024-10-25T10:15:30,123Z] ") == SECOND + 123


def test_times_without_a_date_take_it_from_the_files_name() -> None:
    reader = StampReader(file="/var/log/kafka/kafka-request.log.2024-10-25-10")
    assert reader.read(b"10:15:30,123 DEBUG ") == SECOND + 123
    with pytest.raises(StampError, match="no date"):
        StampReader(file="kafka-request.log").read(b"10:15:30,123 DEBUG ")


@pytest.mark.parametrize("prefix", [b"2024-1-5 9:05:03,5 ", b"[5.1.2024 9:05:03,500] "])
def test_numbers_without_their_zeros(prefix: bytes) -> None:
    assert StampReader().read(prefix) == 1_704_445_503_500.0  # 2024-01-05T09:05:03.5Z


def test_two_digits_of_a_year_are_believed_only_where_the_files_name_bears_them_out() -> None:
    reader = StampReader(file="kafka-request.log.2024-10-25-10")
    for prefix in (b"24/10/25 10:15:30 DEBUG ", b"25.10.24 10:15:30 DEBUG "):
        assert reader.read(prefix) == SECOND
        for other in ("kafka-request.log", "kafka-request.log.2024-10-26"):
            with pytest.raises(StampError, match=r"has two digits; let the layout print yyyy-MM-d"):
                StampReader(file=other).read(prefix)


@pytest.mark.parametrize(
    ("file", "prefix"),
    [
        ("messages-20241027.gz", b"Oct 25 10:15:30 host kafka[7]: DEBUG "),
        ("messages-20250102", b"Oct 25 10:15:30 host kafka[7]: DEBUG "),
        ("messages-20240201", b"Oct 25 10:15:30 2024 host kafka[7]: DEBUG "),
    ],
)
def test_a_day_without_a_year_takes_the_one_nearest_to_the_files(file: str, prefix: bytes) -> None:
    assert StampReader(file=file).read(prefix) == SECOND
    if b"2024" not in prefix:
        with pytest.raises(StampError, match="has no year, and neither has the file's name"):
            StampReader(file="messages").read(prefix)


@pytest.mark.parametrize("prefix", [b"", b"DEBUG ", b"[garbage] "])
def test_a_prefix_without_a_time_says_so(prefix: bytes) -> None:
    with pytest.raises(StampError, match="no time stamp"):
        StampReader().read(prefix)


def test_impossible_times_say_so() -> None:
    with pytest.raises(StampError, match="impossible"):
        StampReader().read(b"[2024-13-45 10:15:30,123] ")


def test_unknown_zones_name_the_way_out() -> None:
    with pytest.raises(ValueError, match="Europe/Berlin"):
        zone_of("Mars/Olympus")


def test_twelve_hour_clocks() -> None:
    reader = StampReader()
    for text, hours in (
        (b"12:15:30 AM", 0),
        (b"01:15:30 AM", 1),
        (b"12:15:30 pm", 12),
        (b"11:15:30 PM", 23),
    ):
        got = reader.read(b"[2024-10-25 " + text + b"] DEBUG ")
        assert got == SECOND + (hours - 10) * 3_600_000
    with pytest.raises(StampError, match="impossible"):
        reader.read(b"[2024-10-25 13:15:30 PM] ")


def test_a_date_that_could_be_read_both_ways_is_not_guessed() -> None:
    with pytest.raises(StampError, match="'04/05/2024' may be day or month first"):
        StampReader(file="kafka-request.log.2024-04-05").read(b"04/05/2024 10:15:30 DEBUG ")


def test_named_zones_are_the_given_ones_and_tell_a_repeated_hour_apart() -> None:
    berlin = StampReader(zone_of("Europe/Berlin"))
    assert berlin.read(b"[2024-10-25 12:15:30,123 CEST] ") == SECOND + 123
    first = berlin.read(b"[2024-10-27 02:15:30,123 CEST] ")
    assert berlin.read(b"[2024-10-27 02:15:30,123 CET] ") == first + 3_600_000
    assert berlin.read(b"[2024-10-27 02:15:30,123] ") == first  # can't be known
    with pytest.raises(StampError, match=r"zone is CEST.*Europe/Berlin.*doesn't use"):
        berlin.read(b"[2024-12-25 12:15:30,123 CEST] ")
    with pytest.raises(StampError, match="zone is PST"):
        StampReader().read(b"2024-12-25 12:15:30,123 PST DEBUG ")


def test_zones_that_only_java_names_are_the_given_one() -> None:
    prefix = b"[2024-10-25 18:15:30,123 SGT] DEBUG "
    assert StampReader(zone_of("Asia/Singapore")).read(prefix) == SECOND + 123
    assert StampReader(zone_of("+08:00")).read(b"[2024-10-25 18:15:30,123] ") == SECOND + 123
    for name in (b"SGT", b"AKDT", b"WIB"):
        with pytest.raises(StampError, match=r"zone is .* give the brokers' with --time-zone"):
            StampReader().read(b"[2024-10-25 18:15:30,123 %s] DEBUG " % name)


def test_an_hour_that_clocks_skipped_tells_that_the_zone_is_another() -> None:
    berlin = StampReader(zone_of("Europe/Berlin"))
    before = berlin.read(b"[2024-03-31 01:59:59,000] ")
    assert berlin.read(b"[2024-03-31 03:00:00,000] ") == before + 1000
    assert berlin.second(b"2024-03-31 02:30:00") is None
    with pytest.raises(StampError, match=r"02:30 was skipped .* is --time-zone the brokers'"):
        berlin.read(b"[2024-03-31 02:30:00,000] ")
    assert berlin.read(b"[2024-03-31 02:30:00,000Z] ") == before + 5_401_000
