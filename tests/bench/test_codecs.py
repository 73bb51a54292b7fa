from shoal.bench import codecs
from shoal.bench.codecs import CODECS
from shoal.codecs.uniform import BITS


def test_every_codec_is_timed_beside_a_copy():
    seen = []
    rows = list(codecs.measure(size=4096, turns=1, watcher=lambda *what: seen.append(what)))
    assert [row["codec"] for row in rows] == list(CODECS) == [name for _, name in seen]
    assert all(row["encode_gb_per_second"] > 0 and row["decode_gb_per_second"] > 0 for row in rows)
    bits = {row["codec"]: row["bits_per_number"] for row in rows}
    for narrow in BITS[:-1]:
        assert narrow < bits[f"uniform, {narrow} bit"] < narrow + 0.5
