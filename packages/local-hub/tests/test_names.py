"""Names of files, repositories and branches that a hostile client may not use."""

from __future__ import annotations

import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import BadRequestError
from huggingface_hub.utils import get_session
from hypothesis import given
from hypothesis import strategies as st

from local_hub.errors import HubError
from local_hub.limits import check_path, check_ref_name, check_repo_name, check_twins, path_problem
from local_hub.running import Served


@pytest.mark.parametrize(
    "path",
    [
        "../up",
        "a/../../up",
        "a/" * 100 + "deep",
        "/etc/passwd",
        "C:/windows",
        "a\\b",
        "a\0b",
        "a\nb",
        "a\x7fb",
        "a\u202etxt.exe",
        "\u2066a",
        ".git/config",
        "a/.GIT/config",
        ".git. /config",
        ".git\u200c/x",
        "a/.g\u200bit/x",
        ".git::$INDEX_ALLOCATION/x",
        "git~1/config",
        "a//b",
        "./a",
        "a/",
        "",
        "a" * 256,
        "ü" * 128,
        "/".join(["a" * 250] * 17),
        "\ud800",
    ],
)
def test_a_path_that_a_system_could_read_as_another_is_refused(path: str) -> None:
    with pytest.raises(HubError, match="the path of a file must"):
        check_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "a",
        ".gitattributes",
        ".github/x",
        "a/b c/ü.txt",
        "a" * 255,
        ".eval_results/x.yaml",
        "a..b",
        "a\u200db",
    ],
)
def test_a_usual_path_is_taken(path: str) -> None:
    check_path(path)


@given(st.text(max_size=30))
def test_no_path_that_is_taken_leaves_its_folder(path: str) -> None:
    if path_problem(path) is None:
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert "\0" not in path


@pytest.mark.parametrize(
    "paths", [("a", "A"), ("x/read.me", "X/README", "x/Readme"), ("\u00e9", "e\u0301"), ("a", "a/b"), ("A", "a/b")]
)
def test_files_that_some_system_cannot_distinguish_are_refused(paths: tuple[str, ...]) -> None:
    with pytest.raises(HubError, match=r"no two paths|a file or a folder"):
        check_twins(paths)


@pytest.mark.parametrize("name", ["..", "a..b", "a/b", "-a", "a.", "a.git", "", "a--b", "ä", "a\n", "a" * 97])
def test_an_invalid_name_of_a_repository_is_refused(name: str) -> None:
    with pytest.raises(HubError):
        check_repo_name("org", name)
    with pytest.raises(HubError):
        check_repo_name(name, "name")


@pytest.mark.parametrize("name", ["api", "Datasets", "spaces", "lfs"])
def test_a_namespace_cannot_hide_the_servers_own_paths(name: str) -> None:
    with pytest.raises(HubError, match="part of the server's paths"):
        check_repo_name(name, "x")


@pytest.mark.parametrize(
    "name", ["refs/pr/1", "a..b", "a/.b", "a.lock", "-a", "a b", "a~1", "", "0" * 40, "a//b", "a/"]
)
def test_a_branch_has_a_name_that_git_takes(name: str) -> None:
    with pytest.raises(HubError):
        check_ref_name(name)


@pytest.fixture(scope="module")
def api(hub: Served) -> HfApi:
    api = HfApi(endpoint=hub.url, token=hub.token())
    api.create_repo("org/named")
    return api


@pytest.mark.parametrize("path", ["a/../../b", ".git/hooks/x", "a\u202eb", "readme.MD"])
def test_a_commit_with_such_a_path_is_refused_whole(api: HfApi, path: str) -> None:
    before = api.model_info("org/named").sha
    files = [
        CommitOperationAdd("README.md", b"# Hi\n"),
        CommitOperationAdd("fine", b"1"),
        CommitOperationAdd("x", b"2"),
    ]
    files[1].path_in_repo = path  # past the client's own checks
    with pytest.raises(BadRequestError):
        api.create_commit("org/named", files, commit_message="Slip in")
    assert api.model_info("org/named").sha == before


@pytest.mark.parametrize("path", ["%2e%2e/%2e%2e/hub.sqlite", "..%2F..%2Fhub.sqlite", "%2Fetc%2Fpasswd", "%00", "%ff"])
def test_an_address_with_dots_reaches_no_file_of_the_server(hub: Served, api: HfApi, path: str) -> None:
    answer = get_session().get(f"{hub.url}/org/named/resolve/main/{path}", headers=api._build_hf_headers())
    assert answer.status_code in (400, 404)
