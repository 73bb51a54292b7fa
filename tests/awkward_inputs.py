"""A hundred things that users do. Each works, or ends with exit code 2 and at most two lines that say why.

An entry is a name, what is said ("" if it works), the arguments of `shoal`, and files that are there.
`{csv}` stands for the settings of a run on sites/*.csv with the label `sick`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Awkward(NamedTuple):
    name: str
    said: str
    arguments: str = "run {csv}"
    files: Mapping[str, Any] = {}  # path -> content, added to or in place of the usual ones


def csv(name: str, said: str, north: str | bytes, arguments: str = "run {csv}") -> Awkward:
    """With another file for one site."""
    return Awkward(name, said, arguments, {"sites/north.csv": north})


HEAD = "age,sex,sick\n"
ROWS = "30,m,no\n40,f,yes\n50,m,no\n60,f,yes\n70,m,no\n35,m,yes\n31,f,no\n32,m,no\n33,f,no\n34,m,yes\n"
GOOD = HEAD + ROWS
USUAL = {"sites/north.csv": GOOD, "sites/south.csv": GOOD, "toy.toml": None, "alone.csv": GOOD}
CSV = (
    "--set task.dataset=csv --set task.path=sites/*.csv --set task.label=sick "
    "--set task.model=linear --set rounds=1"
)

OWN_DATA = [
    Awkward("sites", ""),
    Awkward("path-without-files", "'none/*.csv' matches no file", "run {csv} --set task.path=none/*.csv"),
    Awkward("path-of-nothing", "'none.csv' does not exist", "run {csv} --set task.path=none.csv"),
    Awkward("path-of-a-folder", "sites cannot be read", "run {csv} --set task.path=sites"),
    Awkward("no-path", "task.path is missing", "run --set task.dataset=csv --set task.label=sick"),
    Awkward("no-label", "task.label is missing", "run --set task.dataset=csv --set task.path=alone.csv"),
    Awkward("label-misspelt", "did you mean 'sick'?", "run {csv} --set task.label=sikc"),
    Awkward("one-file-is-no-site", "has no natural clients", "run {csv} --set task.path=alone.csv"),
    Awkward("site-misspelt", "no column 'sax', which task.site names", "run {csv} --set task.site=sax"),
    Awkward("site-column", "", "run {csv} --set task.path=alone.csv --set task.site=sex"),
    Awkward("option-misspelt", "did you mean task.label?", "run {csv} --set task.labl=sick"),
    Awkward("ignored-label", "task.ignore names the label", 'run {csv} --set task.ignore=["sick"]'),
    Awkward("ignored-nothing", "no column 'id', which task.ignore", 'run {csv} --set task.ignore=["id"]'),
    Awkward("ignored-column", "", 'run {csv} --set task.ignore=["sex"]'),
    Awkward("ignored-all", "no column with values besides", 'run {csv} --set task.ignore=["sex","age"]'),
    Awkward("ignore-as-a-text", "task.ignore must be a list", "run {csv} --set task.ignore=sex"),
    Awkward("categories-misspelt", "did you mean 'age'?", 'run {csv} --set task.categories=["agee"]'),
    Awkward("test-in-percent", "for 20 % write 0.2", "run {csv} --set task.test=20"),
    Awkward("test-negative", "must be a share in [0, 1)", "run {csv} --set task.test=-0.1"),
    Awkward("test-of-nothing", "leaves no samples for testing", "run {csv} --set task.test=0"),
    Awkward("test-too-small", "leaves no samples for testing", "run {csv} --set task.test=0.01"),
    Awkward("test-path-absent", "task.test_path = 'x.csv' does not", "run {csv} --set task.test_path=x.csv"),
    Awkward(
        "test-of-a-stranger",
        "has a file for 'west', but task.path has none",
        "run {csv} --set task.test_path=tests/*.csv",
        {"tests/west.csv": GOOD},
    ),
    Awkward("two-separators", "must be one character", "run {csv} --set task.separator=;;"),
    Awkward("wrong-separator", "has no column 'sick'", "run {csv} --set task.separator=;", {}),
    Awkward(
        "regression-of-texts", "line 2, column sick: 'no' is not", "run {csv} --set task.regression=true"
    ),
    Awkward("regression", "", "run {csv} --set task.label=age --set task.regression=true"),
    csv("no-label-here", "has no column 'sick'", "age,sex\n1,m\n"),
    csv("empty-file", "line 1 is empty", ""),
    csv("blank-lines", "", GOOD.replace("\n", "\n\n")),
    csv("only-a-header", "", HEAD),
    csv("no-header", "line 1 holds numbers (30, 1, 0)", "30,1,0\n40,0,1\n"),
    csv("nameless-column", "column 2 of 3 has no name", "age,,sick\n30,m,no\n"),
    csv("same-name-twice", "names the column 'age' twice", "age,age,sick\n30,3,no\n"),
    csv("short-row", "line 4 has 2 values, but line 1 names 3", GOOD.replace("50,m,no", "50,m")),
    csv("long-row", "line 4 has 4 values", GOOD.replace("50,m,no", "50,m,no,1")),
    csv("open-quote", "a quote that is not closed", GOOD + '30,"m,no\n'),
    csv("quotes", "", GOOD.replace("m", '"m, or so"')),
    csv("quoted-line-break", "", GOOD.replace("m", '"m\nor so"')),
    csv("windows-lines", "", GOOD.replace("\n", "\r\n")),
    csv("byte-order-mark", "", GOOD.encode("utf-8-sig")),
    csv("latin-1", "is not UTF-8: byte 0xfc", GOOD.replace("m", "ü").encode("latin-1")),
    csv("utf-16", "not CSV but UTF-16", GOOD.encode("utf-16")),
    csv("umlauts", "", GOOD.replace("m", "männlich")),
    csv("excel", "not CSV but an Excel workbook", b"PK\x03\x04 and so on"),
    csv("parquet-as-csv", 'write task.dataset = "parquet"', b"PAR1 and so on"),
    csv("text-among-numbers", "line 4, column age: '5o' is not a number", GOOD.replace("50", "5o")),
    csv("infinity", "line 4, column age: 'inf' is too large for a number", GOOD.replace("50", "inf")),
    csv("nan", "", GOOD.replace("50", "nan")),
    csv("missing-numbers", "", GOOD.replace("50", "").replace("60", "?")),
    csv("own-mark-for-missing", "'-' is not a number", GOOD.replace("50", "-")),
    csv("told-mark-for-missing", "", GOOD.replace("50", "-"), 'run {csv} --set task.missing=["-"]'),
    csv("missing-label", "line 2, column sick: the label is missing", GOOD.replace("30,m,no", "30,m,")),
    csv("column-of-nothing", "", GOOD.replace("m", "").replace("f", "")),
    csv(
        "numbers-at-one-site-only",
        "holds numbers in sites/south.csv",
        "age,sex,sick\nold,m,no\nyoung,f,yes\n",
    ),
    csv("decimal-commas", "line 1 names 3 columns", GOOD.replace("30", "30,5")),
    csv("another-column", "sites/south.csv has no column 'bmi'", GOOD.replace("sex", "bmi")),
    csv("columns-in-another-order", "", "sick,sex,age\nno,m,30\nyes,f,40\nno,m,50\nyes,m,3\nyes,f,7\n"),
    csv("semicolons", "", GOOD.replace(",", ";")),
    csv("tabs", "", GOOD.replace(",", "\t")),
    csv("spaces-around", "", GOOD.replace(",", " , ")),
    csv("huge-numbers", "'1e300' is too large for a number", GOOD.replace("50", "1e300")),
    csv(
        "identifiers",
        "more than 100 different texts",
        "sex,age,sick\n" + "".join(f"p{i},{i},no\n" for i in range(200)),
    ),
    Awkward("one-class", "has only the label 'no'", files=dict.fromkeys(USUAL, GOOD.replace("yes", "no"))),
    Awkward(
        "fractions-as-classes",
        "for a regression set task.regression = true",
        "run {csv} --set task.label=age",
        {"sites/north.csv": GOOD.replace("30", "30.5")},
    ),
    Awkward(
        "arrays-that-are-none",
        "cannot be read as .npz",
        "run {csv} --set task.dataset=npz".replace("--set task.label=sick", ""),
    ),
    Awkward(
        "images-without-folders",
        "holds no folders with images",
        "run --set task.dataset=images --set task.path=sites",
    ),
    Awkward(
        "negative-size",
        "must be at least 0 pixels",
        "run --set task.dataset=images --set task.path=sites --set task.size=-1",
    ),
]

RUN = "run toy.toml --set rounds=1"
COMMANDS = [
    Awkward("learning-rate", "did you mean local.lr?", "run --set learning_rate=0.1"),
    Awkward("batch-size", "did you mean local.batch?", "run --set batch_size=8"),
    Awkward("lr-alone", "did you mean local.lr?", "run --set lr=0.1"),
    Awkward("clients-alone", "did you mean partition.clients?", "run --set clients=3"),
    Awkward("field-misspelt", "did you mean local.momentum?", "run --set local.momentun=0.9"),
    Awkward("no-value", "must look like path.to.field=value", "run --set rounds"),
    Awkward("rounds-as-text", "rounds must be a whole number, got 'many'", "run --set rounds=many"),
    Awkward("no-rounds", "rounds must be at least 1, got 0", "run --set rounds=0"),
    Awkward("spec-that-is-not-there", "absent.toml does not exist", "run absent.toml"),
    Awkward("spec-that-is-a-table", "is not valid TOML", "run alone.csv"),
    Awkward("out-is-a-page", "must be a folder", RUN + " --out page.html"),
    Awkward("out-is-a-table", "must be a folder", RUN + " --out table.csv"),
    Awkward("out-with-a-dot", "", RUN + " --out v1.2"),
    Awkward("seeds-as-words", "such as 0,1,2 or 0-4; got 'a,b'", "compare fedavg --seeds a,b"),
    Awkward("seeds-downwards", "a range goes up", "compare fedavg --seeds 4-0"),
    Awkward("seeds-twice", "seeds must be different", "compare fedavg --seeds 0,0"),
    Awkward("too-many-seeds", "more than 1000", "compare fedavg --seeds 0-99999"),
    Awkward("grid-without-values", "must look like field=value,value", "compare fedavg --grid local.lr"),
    Awkward("grid-with-a-gap", "must look like field=value,value", "compare fedavg --grid local.lr=0.1,"),
    Awkward("grid-twice", "repeats a field or a value", "compare fedavg --grid local.lr=1,1"),
    Awkward("grid-misspelt", "did you mean local.lr?", "compare fedavg --grid local.lrr=0.1,0.2"),
    Awkward("grid-of-a-word", "local.lr must be a number", "compare fedavg --grid local.lr=fast,slow"),
    Awkward("format-of-word", "--format must be one of csv, latex, markdown", "compare fedavg --format word"),
    Awkward("comparison-in-excel", "a table that ends in .csv, .tex, .md", "compare fedavg --out table.xlsx"),
    Awkward("method-twice", "every method must be named once", "compare fedavg fedavg"),
    Awkward("method-misspelt", "did you mean fedavg?", "compare fedagv"),
    Awkward("methods-field-misspelt", "unknown key method.my; valid are", "compare fedprox:my=1"),
    Awkward("report-in-word", "must end in one of .html", "report sites --out page.doc"),
    Awkward("report-of-no-run", "sites is not a run", "report sites --out page.html"),
    Awkward("methods-of-one", "", "methods fedqp"),
    Awkward("methods-of-a-typo", "did you mean fedprox?", "methods fedprxo"),
    Awkward("experiments", "", "reproduce list"),
    Awkward("experiment-misspelt", "fedqp-table1", "reproduce fedqp-tabel1"),
    Awkward("export-of-nothing", "is not a run directory", "export nowhere --out m.pt"),
    Awkward("export-to-a-picture", "must end in one of .pt", "export nowhere --out m.png"),
    Awkward("start-from-nothing", "task.init = 'w.pt' does not exist", RUN + " --set task.init=w.pt"),
    Awkward("start-from-a-table", "cannot be read as weights", RUN + " --set task.init=alone.csv"),
    Awkward(
        "error-in-a-users-loader",
        "awkward_loader.py, line 2, in load: ZeroDivisionError",
        "run --set task.dataset=awkward_loader:load",
        {"awkward_loader.py": "def load():\n    return 1 / 0\n"},
    ),
    Awkward(
        "error-in-a-users-model",
        "task.model: net failed: RuntimeError: mat1 and mat2",
        RUN + " --set task.model=awkward_model:net",
        {"awkward_model.py": "from torch import nn\n\ndef net(shape, classes): return nn.Linear(7, 3)\n"},
    ),
]
AWKWARD = [*OWN_DATA, *COMMANDS]
