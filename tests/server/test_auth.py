"""Who gets an answer: the token, the name that was asked, the site that asks, the header of a write."""

from __future__ import annotations

import pytest

from agentloupe.ports.protocols import Store
from agentloupe.ports.serving import ServerSettings
from tests.made import weather_like
from tests.server.serving import TOKEN, client_of, put


def test_without_the_token_nothing_of_the_users_is_told(store: Store) -> None:
    put(store, weather_like())
    client = client_of(store)
    for path in ("/api/runs", "/api/about", "/api/openapi.json", "/metrics", "/api/nothing"):
        answer = client.get(path)
        assert answer.status_code == 401, path
        assert answer.json()["error"]["reason"] == "no_token"
        assert "made" not in answer.text


def test_health_needs_no_token(store: Store) -> None:
    client = client_of(store)
    assert client.get("/healthz").json() == {"status": "ok"}
    assert client.get("/readyz").json() == {"status": "ok"}


@pytest.mark.parametrize("wrong", ["", "a-token-for-test", TOKEN + "x", "ä"])
def test_a_wrong_token_is_none(store: Store, wrong: str) -> None:
    client = client_of(store)
    header = {b"Authorization": f"Bearer {wrong}".encode()}
    assert client.get("/api/about", headers=header).status_code == 401
    assert client.get("/api/about", params={"token": wrong}).status_code == 401


def test_the_token_in_the_address_becomes_a_cookie_and_leaves_the_address(store: Store) -> None:
    client = client_of(store)
    answer = client.get("/runs/x", params={"token": TOKEN, "tab": "raw"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs/x?tab=raw")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in answer.headers["location"]
    assert client.get("/api/about").status_code == 200


def test_a_path_that_looks_like_another_host_stays_here(store: Store) -> None:
    answer = client_of(store).get("http://127.0.0.1:8321//elsewhere.example/", params={"token": TOKEN})
    assert answer.headers["location"] == "/elsewhere.example/"


@pytest.mark.parametrize("host", ["elsewhere.example", "127.0.0.1.elsewhere.example", "10.0.0.1:8321", "", "[::2]:80"])
def test_a_name_that_was_pointed_here_gets_nothing(store: Store, host: str) -> None:
    answer = client_of(store, TOKEN).get("/api/about", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "host")


@pytest.mark.parametrize("host", ["localhost:8321", "127.0.0.1", "[::1]:8321", "127.0.0.2:1", "loupe.localhost"])
def test_names_of_this_machine_are_answered(store: Store, host: str) -> None:
    assert client_of(store, TOKEN).get("/api/about", headers={"Host": host}).status_code == 200


def test_a_name_that_was_allowed_is_answered(store: Store) -> None:
    client = client_of(store, TOKEN, server=ServerSettings(hosts=("loupe.example",)))
    headers = {"Host": "loupe.example", "Origin": "https://loupe.example"}
    assert client.get("/api/about", headers=headers).status_code == 200


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "http://127.0.0.1:9", "null", "http://localhost:8321"])
def test_another_site_gets_nothing(store: Store, origin: str) -> None:
    answer = client_of(store, TOKEN).get("/api/about", headers={"Origin": origin})
    assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "origin")


def test_a_browser_that_says_it_comes_from_elsewhere_gets_nothing(store: Store) -> None:
    client = client_of(store, TOKEN)
    assert client.get("/api/about", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.get("/api/about", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_write_without_its_header_is_refused(store: Store) -> None:
    run = put(store, weather_like())
    client = client_of(store, TOKEN)
    del client.headers["X-Loupe"]
    for send in (lambda: client.delete(f"/api/runs/{run}"), lambda: client.post(f"/api/runs/{run}/tags", json={})):
        answer = send()
        assert (answer.status_code, answer.json()["error"]["place"]) == (403, "X-Loupe")
    assert store.run(run) is not None


def test_every_answer_says_what_a_page_may_do(store: Store) -> None:
    for answer in (client_of(store).get("/api/about"), client_of(store, TOKEN).get("/api/about")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
