# pyright: basic, reportMissingImports=false
# ray is an extra
"""A Ray cluster for one run: started on this machine and stopped at the end, or one that runs already."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lagproof.config import RayConfig
from lagproof.errors import ConfigError, MissingPackageError, RunStoppedError

QUIET = {"log_to_driver": False, "configure_logging": False}


def ray_package(*, only_here: bool = False) -> Any:
    """The package, imported.

    Args:
        only_here: a cluster that this process starts listens on the loopback address alone; takes effect where Ray is
            imported for the first time.

    Raises:
        MissingPackageError: it is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if only_here:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            "runtime = 'ray': ray is not installed: pip install 'lagproof[ray]', or leave runtime out for one process",
            name="ray",
        ) from error
    return ray


@contextmanager
def cluster(settings: RayConfig, processes: int, on_note: Callable[[str], None]) -> Iterator[None]:
    """Be connected to a cluster.

    One that this process is connected to already is used, and left alone.

    Args:
        settings: which cluster.
        processes: that will be started there.
        on_note: called with what a person should know.

    Raises:
        MissingPackageError: Ray is not installed.
        ConfigError: nothing answers at ``ray.address``, or it has too few CPUs.
    """
    ray = ray_package(only_here=settings.address is None)
    cpus = processes * settings.threads
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if ray.is_initialized():
        yield
        return
    if settings.address is None and cpus > cores:
        on_note(
            f"rollout.workers = {processes - 1} and a learner, with ray.threads = {settings.threads}, want {cpus} "
            f"cores and there are {cores}: they will take turns; lower rollout.workers or ray.threads"
        )
    _connect(ray, settings, cpus)
    try:
        if settings.address is not None:
            _check_cpus(ray, settings, processes)
        yield
    finally:
        stop()


def start_local(num_cpus: int) -> None:
    """Start Ray on this machine, for this process: no dashboard, no usage statistics, loopback only."""
    ray = ray_package(only_here=True)
    os.environ.setdefault("RAY_worker_niceness", "0")  # by default actors give way to everything else; here they are it
    logging.getLogger("ray").setLevel(logging.ERROR)
    with _handlers_kept():
        ray.init(address="local", num_cpus=num_cpus, include_dashboard=False, **QUIET)


def stop() -> None:
    """Leave the cluster; one that this process has started ends."""
    with _handlers_kept():
        ray_package().shutdown()


def _connect(ray: Any, settings: RayConfig, cpus: int) -> None:
    if settings.address is None:
        start_local(cpus)
        return
    _check_address(settings.address, settings.start_timeout_s)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with _handlers_kept():
            ray.init(address=settings.address, **QUIET)
    except Exception as error:  # whatever its many parts raise
        raise RunStoppedError(
            f"ray.address = {settings.address!r}: cannot be joined: {error}; this machine must be one of the cluster "
            "(ray start --address=...), with the same versions of Ray and Python"
        ) from error


def _check_address(address: str, timeout_s: float) -> None:
    """Whether a cluster answers: Ray itself tries for minutes, and may end the process."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in address:
        raise ConfigError(
            f"ray.address = {address!r}: must be host:port of the cluster's head, as ray start --head prints it"
        )
    wrong = f"ray.address = {address!r}: no Ray cluster answers within {timeout_s:g} s"
    advice = "start one with ray start --head, correct the address, or leave it out for a local one"
    try:
        socket.create_connection((host, int(port)), timeout=timeout_s).close()
    except OSError as error:
        raise ConfigError(f"{wrong} ({error}): {advice}") from error
    ask = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    try:  # in a process of its own: what Ray does with an address that is no cluster has no end, or ends the process
        asked = subprocess.run(ask, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"{wrong}, though something listens there: {advice}") from error
    if asked.returncode != 0:
        said = (asked.stderr.strip() or asked.stdout.strip() or f"exit code {asked.returncode}").splitlines()[-1]
        raise ConfigError(f"{wrong} ({said}): {advice}; a cluster with tokens needs RAY_AUTH_MODE=token here too")


def _check_cpus(ray: Any, settings: RayConfig, processes: int) -> None:
    there, wanted = int(ray.cluster_resources().get("CPU", 0)), processes * settings.threads
    if wanted > there:
        raise ConfigError(
            f"rollout.workers = {processes - 1} and a learner, with ray.threads = {settings.threads}, want {wanted} "
            f"CPUs and the cluster at {settings.address} has {there}: lower them, or add nodes"
        )


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Ray sets a SIGTERM handler of its own and leaves it there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
