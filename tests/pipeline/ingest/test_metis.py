"""METIS files: what they hold, and every way in which the counts and lines of one can be wrong."""

from pathlib import Path

import pytest

from pipeline.ingest.metis import read_metis
from pipeline.runtime.errors import UserError
from pipeline.store.cleaning import clean_edges


def test_a_file_with_comments_and_a_lone_node(tmp_path: Path) -> None:
    path = tmp_path / "x.metis"
    path.write_text("% a path and a lone node\n5 3\n2\n1 3\n% in the middle\n2 4\n3\n\n")
    num_nodes, (rows, columns) = read_metis(path)
    csr, _ = clean_edges(rows, columns, num_nodes)
    assert num_nodes == 5
    assert csr.indices.tolist() == [1, 0, 2, 1, 3, 2]
    assert csr.degrees().tolist() == [1, 2, 2, 1, 0]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("not a graph\n", "numbers of nodes and edges (got 'not a graph')"),
        ("5 3\n2\n1 3\n2 4\n3\n", "a line for each of 5 nodes (got 4)"),
        ("3 3\n2\n1 3\n2 4\n3\n", "after the lines of 3 nodes"),
        ("4 2\n2\n1 3\n2 4\n3\n", "list 2 edges twice"),
        ("4 3\n2\n1 3\n2 0\n3\n", "nodes 1…4 (got 0 in the line of node 3)"),
        ("4 3\n2\n1 3\n2 5\n3\n", "nodes 1…4 (got 5 in the line of node 3)"),
        ("4 3\n2\n1 3\n2 4\n2\n", "(got the one of 2 and 4 in one of them)"),
        ("4 3 1\n2 1\n1 1 3 1\n2 1 4 1\n3 1\n", "without weights (got format 1)"),
        ("4 3\n2\n1 x\n2 4\n3\n", "numbers only (got b'x' in the line of node 2)"),
        ("4 3\n2\n1 -3\n2 4\n3\n", "(got b'-' in the line of node 2)"),
        ("4 3\n2\n1 33333333333\n2 4\n3\n", "more than ten digits"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "x.metis"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        read_metis(path)
    assert line in str(caught.value)
    assert str(path) in str(caught.value)
