"""MAP and MRR: worked by hand, by trec_eval and by ir_measures; and the files of trec_eval."""

import math
from fractions import Fraction

import hypothesis.strategies as st
import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays

from nse.errors import DataError, InputError
from nse.metrics import trec
from nse.metrics.ranking import MEASURES, compute_measures, count_questions
from nse.metrics.trec import compute_file_measures

NEXT = float(np.nextafter(np.float32(0.5), np.float32(1)))  # the float32 after 0.5


MIXED = [7, 7], [0, 1]
"""The groups and labels of a question with both, so that every figure has something to be the mean of."""


def one(scores, labels):
    """MAP and MRR of one question."""
    groups = np.zeros(len(scores), int)
    assert compute_measures(scores, groups, labels) == trec_evals(scores, groups, labels)
    report = compute_measures(scores, groups, labels)
    return report["map"], report["mrr"]


def trec_evals(scores, groups, labels):
    """What trec_eval itself says."""
    run, qrels = {}, {}
    columns = np.asarray(scores, np.float32).tolist(), np.asarray(labels).tolist()
    for (question, candidate), score, label in zip(ids(np.asarray(groups)), *columns, strict=True):
        run.setdefault(question, {})[candidate] = score
        qrels.setdefault(question, {})[candidate] = int(label)
    report = pytrec_eval.RelevanceEvaluator(qrels, {"map", "recip_rank"}).evaluate(run)
    right = [question for question in qrels if 1 in qrels[question].values()]
    mixed = [question for question in right if 0 in qrels[question].values()]
    return {
        f"{name}{suffix}": math.fsum(report[question][measure] for question in wanted) / len(wanted)
        for suffix, wanted in (("", right), ("_mixed", mixed))
        for name, measure in (("map", "map"), ("mrr", "recip_rank"))
    }


@pytest.mark.parametrize(
    ("scores", "labels", "ap", "rr"),
    [
        # ranks 1 2 3: right, wrong, right. AP (1/1 + 2/3) / 2
        ([0.9, 0.8, 0.7], [1, 0, 1], Fraction(5, 6), Fraction(1)),
        # the last row scores highest, ranks 1 2 3 4: wrong, wrong, right, right. AP (1/3 + 2/4) / 2
        ([0.1, 0.2, 0.3, 0.4], [1, 1, 0, 0], Fraction(5, 12), Fraction(1, 3)),
        # rights at ranks 2, 4 and 5 of 5. AP (1/2 + 2/4 + 3/5) / 3
        ([5, 4, 3, 2, 1], [0, 1, 0, 1, 1], Fraction(8, 15), Fraction(1, 2)),
        # one right, last of six; negative scores
        ([-1, -2, -3, -4, -5, -6], [0, 0, 0, 0, 0, 1], Fraction(1, 6), Fraction(1, 6)),
        # all tied: the last row is ranked first, so the right ones have ranks 2 and 4. AP (1/2 + 2/4) / 2
        ([0, 0, 0, 0], [1, 0, 1, 0], Fraction(1, 2), Fraction(1, 2)),
        # zero and minus zero are a tie too
        ([0.0, -0.0], [1, 0], Fraction(1, 2), Fraction(1, 2)),
        ([-0.0, 0.0], [0, 1], Fraction(1), Fraction(1)),
        # rows 1 and 2 are tied: ranked are rows 3, 2, 1, 0: wrong, right, wrong, right. AP (1/2 + 2/4) / 2
        ([0.1, 0.5, 0.5, 0.9], [1, 0, 1, 0], Fraction(1, 2), Fraction(1, 2)),
    ],
)
def test_measures_of_an_example_worked_by_hand(scores, labels, ap, rr):
    assert one(scores, labels) == pytest.approx((float(ap), float(rr)), abs=1e-12)


def test_candidate_ten_is_ranked_before_nine_in_a_tie():
    """As strings, "9" is larger than "10"; padded they compare as numbers."""
    labels = [0] * 12
    labels[9] = 1  # behind 11 and 10
    assert one([0.5] * 12, labels) == (pytest.approx(1 / 3), pytest.approx(1 / 3))


@pytest.mark.parametrize(
    ("first", "second", "rank_of_first"),
    [
        (0.5 + 1e-12, 0.5, 2),  # the same float32: a tie, and the later row comes first
        (NEXT, 0.5, 1),
        (0.5, NEXT, 2),
        (2e-46, 1e-46, 2),  # both round to zero
        (2**24 + 1, 2**24, 2),  # whole numbers are rounded too
    ],
)
def test_scores_are_compared_as_float32(first, second, rank_of_first):
    scores = np.array([first, second])
    assert one(scores, [1, 0]) == (1 / rank_of_first, 1 / rank_of_first)


# Four questions, their rows mixed: question 0 has rights and wrongs, 1 no right, 2 only rights, 3 both.
GROUPS = [3, 0, 1, 0, 2, 3, 0, 1, 2]
LABELS = [0, 0, 0, 1, 1, 1, 1, 0, 1]
SCORES = [0.9, 0.7, 0.5, 0.6, 0.1, 0.3, 0.5, 0.4, 0.2]
# question 0: wrong, right, right: AP (1/2 + 2/3) / 2 = 7/12, RR 1/2. 2: AP 1, RR 1. 3: AP 1/2, RR 1/2.
EXPECTED = {
    "map": float((Fraction(7, 12) + 1 + Fraction(1, 2)) / 3),
    "mrr": float((Fraction(1, 2) + 1 + Fraction(1, 2)) / 3),
    "map_mixed": float((Fraction(7, 12) + Fraction(1, 2)) / 2),
    "mrr_mixed": 0.5,
}


def test_questions_without_a_right_answer_are_left_out():
    report = compute_measures(SCORES, GROUPS, LABELS)
    assert tuple(report) == MEASURES
    assert report == pytest.approx(EXPECTED, abs=1e-12)
    assert count_questions(GROUPS, LABELS) == {"questions": 3, "mixed": 2}
    assert report == trec_evals(SCORES, GROUPS, LABELS)


def test_data_without_a_right_answer_raises_an_error():
    with pytest.raises(InputError, match="no question has a right answer"):
        compute_measures([1.0, 2.0], [0, 1], [0, 0])


def test_questions_with_only_right_answers_are_not_mixed():
    """The means over questions with both kinds have nothing to be means of."""
    with pytest.raises(InputError, match="no question has a right and a wrong answer"):
        compute_measures([1.0, 2.0], [0, 0], [1, 1])
    assert count_questions([0, 0], [1, 1]) == {"questions": 1, "mixed": 0}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e39])
def test_an_error_names_rows_whose_scores_are_not_finite(bad, tmp_path):
    scores = [0.0, bad, 0.5, bad, bad, bad]
    groups, labels = [0] * 6, [1, 0, 0, 0, 0, 0]
    expected = rf"scores: expected finite float32 numbers, got {bad} in row 1, .* row 3, .* row 4 and 1 more"
    with pytest.raises(InputError, match=expected.replace("+", r"\+")):
        compute_measures(scores, groups, labels)
    with pytest.raises(InputError, match="row 1"):
        trec.write_trec(tmp_path / "of", scores, groups, labels)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("scores", "groups", "labels", "message"),
    [
        ([1.0], [0, 0], [1, 0], r"scores: .* a row for each of groups \[2\], got float64 \[1\]"),
        ([1.0, 2.0], [0, 0], [1, 0, 0], r"labels: .* a row for each of groups \[2\], got int64 \[3\]"),
        ([[1.0, 2.0]], [0, 0], [1, 0], r"scores: .* got float64 \[1, 2\]"),
        (1.0, [0], [1], r"scores: .* got float64 \[\]"),
        ([], [], [], r"scores: .* got float64 \[0\]"),
        (["1", "2"], [0, 0], [1, 0], "scores: expected finite float32 numbers, .* got <U1"),
        ([[1.0], [1.0, 2.0]], [0, 0], [1, 0], "inhomogeneous"),
        ([1.0, 2.0], [0.0, 0.0], [1, 0], "groups: expected the numbers of questions, .* got float64"),
        ([1.0, 2.0], [0, -1], [1, 0], "groups: expected the numbers of questions, from 0, got -1 in row 1"),
        ([1.0, 2.0], [0, 0], [2, 0], r"labels: expected 1 \(right\) or 0 \(wrong\), got 2 in row 0"),
        ([1.0, 2.0], [0, 0], [1, -1], "labels: .* got -1 in row 1"),
        ([1.0, 2.0], [0, 0], [1.0, 0.5], "labels: expected 1 .* got float64"),
    ],
)
def test_columns_that_do_not_fit_raise_an_error(scores, groups, labels, message):
    with pytest.raises(ValueError, match=message):
        compute_measures(scores, groups, labels)


def test_labels_may_be_booleans():
    assert compute_measures(SCORES, GROUPS, np.array(LABELS, bool)) == compute_measures(
        SCORES, GROUPS, LABELS
    )


def test_more_candidates_than_four_digits_can_number_raise_an_error(tmp_path):
    rows = np.arange(10_001)
    assert compute_measures(rows[:-1], 0 * rows[:-1], rows[:-1] == 0)["mrr"] == 1e-4
    with pytest.raises(InputError, match="question 3 has more than 10,000 candidates"):
        trec.write_trec(tmp_path / "of", rows, 0 * rows + 3, rows == 0)
    assert list(tmp_path.iterdir()) == []


@st.composite
def ranked_rows(draw):
    """Rows of a few questions in any order, with few different scores, so that many are tied."""
    n = draw(st.integers(1, 40))
    near = [0.5, NEXT, 0.5 + 1e-12, -0.0, 0.0, 1e-46, -3.0, 7.25, 3e38]
    scores = draw(arrays(np.float64, n, elements=st.sampled_from(near)))
    groups = draw(arrays(np.int64, n, elements=st.integers(0, 6)))
    labels = draw(arrays(np.int64, n, elements=st.integers(0, 1)))
    return np.append(scores, [0.5, 0.5]), np.append(groups, MIXED[0]), np.append(labels, MIXED[1])


@settings(max_examples=300, deadline=None)
@given(ranked_rows())
def test_measures_equal_those_of_trec_eval_bit_by_bit(rows):
    assert compute_measures(*rows) == trec_evals(*rows)


def random_rows(seed, n=400, distinct=None):
    draw = np.random.default_rng(seed)
    scores = draw.normal(size=n) if distinct is None else draw.integers(0, distinct, n) / 7
    return scores.astype(np.float32), draw.integers(0, 40, n), (draw.random(n) < 0.15).astype(int)


def ids(groups):
    """Question and candidate of each row, numbered one after the other."""
    seen = {}
    for group in groups.tolist():
        number = seen[group] = seen.get(group, -1) + 1
        yield str(group + 1), f"{number:04d}"


@pytest.mark.parametrize("distinct", [None, 3])
@pytest.mark.parametrize("seed", range(5))
def test_measures_equal_those_of_ir_measures(seed, distinct):
    scores, groups, labels = random_rows(seed, distinct=distinct)
    run, qrels = [], []
    for (question, candidate), score, label in zip(
        ids(groups), scores.tolist(), labels.tolist(), strict=True
    ):
        run.append(ir_measures.ScoredDoc(question, candidate, score))
        qrels.append(ir_measures.Qrel(question, candidate, label))
    kinds = {}
    for qrel in qrels:
        kinds.setdefault(qrel.query_id, set()).add(qrel.relevance)
    report = compute_measures(scores, groups, labels)
    for suffix, wanted in [("", {1}), ("_mixed", {0, 1})]:
        kept = {question for question, held in kinds.items() if wanted <= held}
        means = ir_measures.calc_aggregate(
            [ir_measures.AP, ir_measures.RR], [q for q in qrels if q.query_id in kept], run
        )
        assert report["map" + suffix] == pytest.approx(means[ir_measures.AP], abs=1e-9)
        assert report["mrr" + suffix] == pytest.approx(means[ir_measures.RR], abs=1e-9)


def test_files_have_the_format_of_trec_eval(tmp_path):
    run = trec.write_trec(tmp_path / "of.v1", [0.25, 0.1, 0.5, 0.25, -1e-7], [1, 0, 1, 1, 0], [1, 0, 0, 1, 1])
    assert run == tmp_path / "of.v1.run"
    assert run.read_text("utf-8") == (
        "1 Q0 0000 1 0.100000001 nse\n"
        "1 Q0 0001 2 -1.00000001e-07 nse\n"
        "2 Q0 0001 1 0.5 nse\n"
        "2 Q0 0002 2 0.25 nse\n"  # tied: the later row first
        "2 Q0 0000 3 0.25 nse\n"
    )
    assert (tmp_path / "of.v1.qrels").read_text("utf-8") == (
        "1 0 0000 0\n1 0 0001 1\n2 0 0000 1\n2 0 0001 0\n2 0 0002 1\n"
    )


@pytest.mark.parametrize("distinct", [None, 3])
def test_files_have_the_same_measures_as_arrays(tmp_path, distinct):
    scores, groups, labels = random_rows(1, distinct=distinct)
    run = trec.write_trec(tmp_path / "of", scores, groups, labels)
    wanted = {**compute_measures(scores, groups, labels), **count_questions(groups, labels)}
    report = compute_file_measures(run, tmp_path / "of.qrels")
    assert {**report} == pytest.approx(wanted, abs=1e-12)
    read = trec.read_trec(run)
    assert [read[item] for item in ids(groups)] == scores.tolist()
    assert isinstance(report["questions"], int)


@settings(max_examples=200, deadline=None)
@given(arrays(np.float32, 3, elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_a_written_score_is_read_as_the_same_float32(tmp_path_factory, scores):
    file = trec.write_trec(tmp_path_factory.getbasetemp() / "scores", scores, [0, 0, 0], [0, 1, 0])
    read = trec.read_trec(file)
    assert np.array([read["1", f"000{n}"] for n in range(3)], np.float32).tobytes() == scores.tobytes()


def test_published_ref_files_can_be_read(tmp_path):
    """WikiQA's are not padded, and tell 0 for the fields that nobody uses."""
    scores = np.linspace(0, 1, 12)
    labels = [0] * 10 + [1, 0]
    run = trec.write_trec(tmp_path / "of", scores, [0] * 12, labels)
    ref = tmp_path / "WikiQA-test.ref"
    ref.write_text("".join(f"1 0 {n} {label}\n" for n, label in enumerate(labels)), "utf-8", newline="\r\n")
    assert compute_file_measures(run, ref) == {
        **dict.fromkeys(MEASURES, 0.5),
        "questions": 1,
        "mixed": 1,
    }
    assert list(trec.read_trec(ref, trec.QRELS))[9:11] == [("1", "0009"), ("1", "0010")]


def test_a_published_rank_file_can_be_read_and_its_ties_are_broken_by_number(tmp_path):
    (tmp_path / "rank").write_text("".join(f"01 0 {n} 0 0.5 0\n" for n in range(12)), "utf-8")
    (tmp_path / "ref").write_text("".join(f"1 0 {n} {n == 9:d}\n" for n in range(12)), "utf-8")
    assert compute_file_measures(tmp_path / "rank", tmp_path / "ref")["mrr"] == pytest.approx(1 / 3)


def test_ids_that_are_not_numbers_are_not_padded(tmp_path):
    (tmp_path / "run").write_text("Q1 Q0 Q1-10 1 1.5 x\nQ1 Q0 Q1-9\u00a0é 2 1e-3 x", "utf-8")
    (tmp_path / "qrels").write_text("Q1\t0\tQ1-10\t1\nQ1 0 Q1-9\u00a0é 0\n", "utf-8")
    assert trec.read_trec(tmp_path / "run") == {
        ("Q1", "Q1-10"): 1.5,
        ("Q1", "Q1-9\u00a0é"): float(np.float32(1e-3)),
    }
    assert compute_file_measures(tmp_path / "run", tmp_path / "qrels")["map"] == 1


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1 Q0 0001 2 0.5", "expected 6 fields, QUESTION Q0 CANDIDATE RANK SCORE NAME, got 5"),
        (b"1 Q0 0001 2 0.5 nse more", "expected 6 fields, .*, got 7"),
        (b"", "expected 6 fields, .*, got 0"),
        (b"1 Q0 0001 2 nan nse", "score: expected a finite float32 number, got 'nan'"),
        (b"1 Q0 0001 2 -Inf nse", "score: expected a finite float32 number, got '-Inf'"),
        (b"1 Q0 0001 2 1e39 nse", "score: expected a finite float32 number, got '1e39'"),
        (b"1 Q0 0001 2 high nse", "score: .*, got 'high'"),
        (b"1 Q0 0001 2 1_0 nse", "score: .*, got '1_0'"),
        ("1 Q0 0001 2 \u0661 nse".encode(), "score: .*, got '\u0661'"),
        (b"1 Q0 0 2 0.5 nse", "candidate 0 of question 1 occurs twice"),
        (b"1 Q0 \xff 2 0.5 nse", "is not UTF-8"),
        (b"1 Q0 a\0b 2 0.5 nse", "holds a NUL"),
    ],
)
def test_an_error_names_file_and_line_of_a_broken_run(tmp_path, line, message):
    file = tmp_path / "run"
    file.write_bytes(b"1 Q0 0000 1 0.5 nse\n" + line + b"\n2 Q0 0000 1 0.5 nse\n")
    with pytest.raises(DataError, match=f"run: line 2: {message}"):
        trec.read_trec(file)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"1 0 1", "expected 4 fields, QUESTION 0 CANDIDATE LABEL, got 3"),
        (b"1 0 1 2", r"label: expected 1 \(right\) or 0 \(wrong\), got '2'"),
        (b"1 0 1 1.0", "label: .*, got '1.0'"),
        (b"1 0 0000 1", "candidate 0000 of question 1 occurs twice"),
        (b"1 0 \xff 1", "is not UTF-8"),
    ],
)
def test_an_error_names_file_and_line_of_broken_judgements(tmp_path, line, message):
    file = tmp_path / "ref"
    file.write_bytes(b"1 0 0 1\n" + line + b"\n")
    with pytest.raises(DataError, match=f"ref: line 2: {message}"):
        trec.read_trec(file, trec.QRELS)


@pytest.mark.parametrize("layout", [trec.RUN, trec.QRELS])
def test_a_missing_or_empty_file_raises_an_error(tmp_path, layout):
    with pytest.raises(DataError, match="none: cannot be read: No such file"):
        trec.read_trec(tmp_path / "none", layout)
    (tmp_path / "empty").write_bytes(b"\n")
    with pytest.raises(DataError, match="empty: is empty; expected QUESTION"):
        trec.read_trec(tmp_path / "empty", layout)


@pytest.mark.parametrize(
    ("ranked", "judged", "message"),
    [
        ([0, 0], [0, 0, 1], "judged.qrels: has ids that .*ranked.run does not have: question 2"),
        (
            [0, 0],
            [0, 0, 0],
            "has ids that .*ranked.run does not have: candidate 0002 of question 1",
        ),
        ([0, 0, 1], [0, 0], "ranked.run: has ids that .*judged.qrels does not have: question 2"),
        ([0] * 7, [0, 0], "not have: candidate 0006 of question 1, .* 0005 .*, .* 0004 .* and 2 more"),
    ],
)
def test_ids_that_only_one_file_has_raise_an_error(tmp_path, ranked, judged, message):
    """trec_eval would drop it without a word, and the figure would be of fewer questions."""
    trec.write_trec(tmp_path / "ranked", [0.5] * len(ranked), ranked, [0] * len(ranked))
    trec.write_trec(tmp_path / "judged", [0.5] * len(judged), judged, [1, 0, 0][: len(judged)])
    with pytest.raises(DataError, match=message):
        compute_file_measures(tmp_path / "ranked.run", tmp_path / "judged.qrels")


def test_a_file_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    run = trec.write_trec(tmp_path / "of", [0.5], [0], [1])
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        trec.write_trec(tmp_path / "of", [0.75], [0], [1])
    assert trec.read_trec(run) == {("1", "0000"): 0.5}
    assert sorted(tmp_path.iterdir()) == before
