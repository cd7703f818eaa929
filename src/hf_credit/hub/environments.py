"""Environments on the Hub: publishes them as OpenEnv Spaces, and loads Spaces without running their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hf_credit import environments
from hf_credit._version import __version__
from hf_credit.environments import ENVIRONMENTS, Environment
from hf_credit.environments.openenv_world import OpenEnvEnvironment
from hf_credit.hub.loading import fetch
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.spaces import refuse_what_stays_behind, space_files, space_url
from hf_credit.hub.wheel import own_wheel
from hf_credit.options import with_parts
from hf_credit.playing import Prompts
from hf_credit.renamed import old_names
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.safe_io import read_yaml


@with_parts
def openenv_interaction(
    url: str, action_field: str | None = None, *, prompts: Prompts = Prompts(), **options: Any
) -> EnvironmentInteraction:
    """Returns one agent that plays an environment on an OpenEnv server, as `task: openenv` does in a recipe.

    Args:
        url: the URL of the server.
        action_field: the field of the action that receives the text; the only required field if `None`.
        history, instructions, max_turns: as for `EnvironmentInteraction`.
        **options: other options of `hf_credit.environments.openenv_world.OpenEnvEnvironment`.

    Raises:
        ValueError: as in `OpenEnvEnvironment` and `EnvironmentInteraction`.
    """
    return EnvironmentInteraction(OpenEnvEnvironment(url, action_field, **options), **vars(prompts))


def publish_environment(
    environment: str,
    repo: str,
    *,
    options: Mapping[str, Any] | None = None,
    title: str | None = None,
    **where: Any,
) -> Published:
    """Publishes an environment of this library as an OpenEnv Space, which serves it.

    Args:
        environment: the name.
        repo: owner/name of the Space.
        options: options of the environment.
        title: as for `space_files`.
        **where: as for `hf_credit.hub.publishing.publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: as in `space_files`.
        HubError: as in `publish`.
    """
    files = {**space_files(environment, options, repo=repo, title=title), **own_wheel()}
    message = f"Publish the environment {environment} of hf-credit {__version__}"
    return publish(files, repo, repo_type="space", space_sdk="docker", message=message, **where)


@with_parts
def load_environment(
    repo: str,
    *,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    prompts: Prompts = Prompts(),
    **server: Any,
) -> EnvironmentInteraction:
    """Loads an OpenEnv Space as an interaction, without running its code.

    A Space published with this library becomes an environment in this process, built from its declaration. Any other
    Space is played on its server, https://OWNER-NAME.hf.space.

    Args:
        repo: owner/name of the Space, or the URL of a server.
        revision: a commit, a branch or a tag; the main branch if `None`.
        token, endpoint: as for `hf_credit.hub.loading.fetch`.
        history, instructions, max_turns: as for `EnvironmentInteraction`.
        **server: options of `openenv_interaction`; with `url`, any Space is played on that server.

    Raises:
        ValueError: the Space declares no environment, one of another version of this library, or one whose options
            name code; or as in `openenv_interaction`.
        HubError: as in `fetch`.
    """
    shown = vars(prompts)
    if "://" in repo:
        return openenv_interaction(repo, **shown, **server)
    fetched = fetch(repo, repo_type="space", revision=revision, token=token, endpoint=endpoint, allow=["openenv.yaml"])
    declared = read_yaml(fetched.files["openenv.yaml"])
    if not isinstance(declared, dict):
        raise ValueError(
            f"openenv.yaml must be a mapping, got {str(declared)[:100]!r} in {repo!r}; play another Space."
        )
    block = declared.get("hf_credit")
    if block is not None and "url" not in server:
        if server:
            raise ValueError(
                f"{repo!r} is played in this process, got {', '.join(server)} for a server; pass url= as well."
            )
        return EnvironmentInteraction(_declared(repo, block), **shown)
    validation = declared.get("validation")
    capabilities = validation.get("capabilities") if isinstance(validation, dict) else None
    restores = isinstance(capabilities, dict) and capabilities.get("set_state") is True
    return openenv_interaction(**{"url": space_url(repo), "set_state": restores, **shown, **server})


def _declared(repo: str, block: Any) -> Environment[Any]:
    """The environment that a Space's declaration names, of this library and version and without code and files."""
    values = block if isinstance(block, dict) else {}
    name, options, version = (values.get(key) for key in ("environment", "options", "version"))
    if name not in ENVIRONMENTS or not isinstance(options, dict):
        raise ValueError(
            f"the Space {repo!r} must name an environment of this library, got {str(block)[:200]}; pass url= to play "
            "it on its server."
        )
    if version != __version__:
        raise ValueError(
            f"the Space {repo!r} must be of the installed version of hf-credit, {__version__}, got "
            f"{str(version)[:50]!r}; install that, or pass url= to play it on its server."
        )
    refuse_what_stays_behind(options)
    return environments.make(str(name), **options)


if not TYPE_CHECKING:  # which would take any name for known
    __getattr__ = old_names(__name__, {"OpenEnvInteraction": "openenv_interaction"})
