"""The pytest plugin: records the memory of tests, and fails those that need more than they may."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

import pytest

from . import library, limits, measure, pytest_options, restart, summary
from .errors import HeapprofError
from .increase import Peaks
from .limits import Limits
from .profile import Profile
from .pytest_options import Options

_PLUGIN = "heapprof_recorder"


def pytest_addoption(parser: Any) -> None:
    """Adds the options."""
    pytest_options.add(parser)


@pytest.hookimpl(tryfirst=True, hookwrapper=True)
def pytest_load_initial_conftests(early_config: Any) -> Any:
    """Starts pytest again before it does anything else, if all tests are to be recorded."""
    options = _read(early_config, early_config.known_args_namespace)
    if options.everything and not library.is_preloaded():
        restart.restart(_found(options), options.objects)
    yield


def pytest_configure(config: Any) -> None:
    """Begins the plugin's work."""
    pytest_options.add_markers(config)
    options = _read(config, config.option)
    if not options.off:
        config.pluginmanager.register(Recorder(config, options), _PLUGIN)


def pytest_report_header(config: Any) -> Optional[str]:
    """Says what is recorded."""
    recorder: Optional[Recorder] = config.pluginmanager.getplugin(_PLUGIN)
    if recorder is None:
        return "heapprof: off, so limits of memory are not checked"
    return recorder.header()


def _read(config: Any, namespace: Any) -> Options:
    try:
        return pytest_options.read(config, namespace)
    except ValueError as error:
        raise pytest.UsageError(f"heapprof: {error}") from None


def _found(options: Options) -> str:
    """Finds the library with which pytest can start again, or says why that can't be."""
    try:
        restart.check_restarted()
        restart.check_program()
        return restart.find_library(options.program)
    except restart.CantRestart as error:
        raise pytest.UsageError(f"heapprof: {error}") from None


def _kept_by_unittest(item: Any) -> Optional[BaseException]:
    """Gives what a test of unittest raised, which pytest keeps for its report."""
    kept = getattr(item, "_excinfo", None)
    return kept[0].value if kept else None


class Recorder:
    """Records tests, and judges them."""

    def __init__(self, config: Any, options: Options) -> None:
        self.config = config
        self.options = options
        self.is_worker = hasattr(config, "workerinput")
        self.limits: Dict[str, Limits] = {}
        # A worker of xdist can't end the run, so it fails the tests whose markers are wrong.
        self.wrong: Dict[str, str] = {}
        self.data: Dict[str, measure.Data] = {}
        self.objects: Optional[bool] = None
        self.peaks: Optional[Peaks] = None
        if library.is_preloaded():
            self._look()
        if options.fails_on_increase and options.everything:
            cache = getattr(config, "cache", None)
            if cache is None:
                raise pytest.UsageError(
                    "heapprof: --fail-on-increase keeps its peaks in pytest's cache, which is off; "
                    "leave -p no:cacheprovider out"
                )
            self.peaks = Peaks(cache, bool(self.objects))
        if options.directory:
            self._make_folder(options.directory)

    def _make_folder(self, directory: str) -> None:
        self.directory = os.path.join(str(self.config.invocation_params.dir), directory)
        try:
            os.makedirs(self.directory, exist_ok=True)
        except OSError as error:
            raise pytest.UsageError(
                f"heapprof: {directory}: {error.strerror}; name another folder by --heapprof-dir"
            ) from None

    def _look(self) -> None:
        """Finds out what a recording of this process has, by a short one."""
        if library.is_running():
            if self.options.everything:
                raise pytest.UsageError(_RECORDED)
            return
        try:
            library.start(0)
            kept = [object() for _ in range(2000)]
            self.comments = Profile(library.profile()).comments
            library.stop()
            del kept
        except HeapprofError as error:
            raise pytest.UsageError(f"heapprof: {error}") from None
        self.objects = any("small objects: recorded" in text for text in self.comments)
        if self.options.objects_are_asked and self.objects != self.options.objects:
            value = "yes" if self.options.objects else "no"
            raise pytest.UsageError(
                f"heapprof: Python's small objects {'are' if self.objects else 'are not'} recorded "
                "in this process, and only its beginning could change that; set "
                f"HEAPPROF_OUTPUT=/dev/null/%p and HEAPPROF_PYTHON_OBJECTS={value}"
            )

    def header(self) -> str:
        """Says what is recorded, in one line."""
        if self.objects is None:
            return "heapprof: records tests that have limits"
        which = "each test" if self.options.everything else "tests that have limits"
        period = self.options.period
        what = f"one allocation in {period} bytes on average" if period else "every allocation"
        small = "with Python's small objects"
        if not self.objects:
            small = "without Python's small objects (up to 512 bytes), which are in no number"
        return f"heapprof: records {what} of {which}, {small}"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self, session: Any) -> None:
        """Reads the limits, and starts pytest again if it has to."""
        for item in session.items:
            try:
                found = limits.limits_of(item, self.options.usual)
            except ValueError as error:
                if not self.is_worker:
                    raise pytest.UsageError(f"heapprof: {error}") from None
                self.wrong[item.nodeid] = f"heapprof: {error}"
                continue
            if found is not None:
                self.limits[item.nodeid] = found
        if not self.limits or self.config.getoption("collectonly", False) or self.is_worker:
            return
        if not library.is_preloaded():
            self._restart_late()
        if library.is_running():
            raise pytest.UsageError(_RECORDED)

    def _restart_late(self) -> None:
        """Starts pytest again when it has already collected tests and found limits."""
        found = _found(self.options)
        manager = self.config.pluginmanager
        reporter = manager.getplugin("terminalreporter")
        if reporter is not None and self.config.getoption("verbose", 0) >= 0:
            reporter.write_line(
                f"heapprof: {len(self.limits)} of these tests have limits, so pytest starts again "
                "with libheapprof.so preloaded; with --heapprof it does so at once"
            )
        capture = manager.getplugin("capturemanager")
        if capture is not None:
            capture.stop_global_capturing()
        restart.restart(found, self.options.objects)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self) -> None:
        """Lets tests see the environment that the user gave. Workers of xdist need ours first."""
        if not self.config.pluginmanager.hasplugin("dsession"):
            restart.restore_environment()

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self, item: Any) -> Any:
        """Records the call of a test: its setup and its teardown are not in it."""
        found = self.limits.get(item.nodeid)
        if not (found or self.options.everything or item.nodeid in self.wrong):
            yield
            return
        run = item.runtest
        item.runtest = lambda: self._run(item, run, found or Limits())
        try:
            yield
        finally:
            del item.runtest

    def _run(self, item: Any, run: Any, found: Limits) -> None:
        item.heapprof_data = None
        if item.nodeid in self.wrong:
            pytest.fail(self.wrong[item.nodeid], pytrace=False)
        if not library.is_preloaded():
            pytest.fail(
                "heapprof: libheapprof.so is not preloaded, so the limit can't be checked; "
                "run pytest with --heapprof, or with --heapprof-off to check no limit",
                pytrace=False,
            )
        if library.is_running():
            pytest.fail(_RECORDED, pytrace=False)
        for _ in range(found.warmups):
            run()
            if _kept_by_unittest(item):
                return
        file = None
        if self.options.directory:
            file = os.path.join(self.directory, measure.file_name(item.nodeid))
        try:
            measured = measure.recorded(run, self.options, file)
        except measure.NotMeasured as error:
            pytest.fail(f"heapprof: {error}", pytrace=False)
        profile, raised, children = measured
        raised = raised or _kept_by_unittest(item)
        if profile is not None and not isinstance(raised, pytest.skip.Exception):
            item.heapprof_data = measure.data_of(profile, children)
        if raised is None:
            self._judge(item, measured, found)
        elif not _kept_by_unittest(item):
            try:
                raise raised
            finally:
                del raised

    def _judge(self, item: Any, measured: measure.Measured, found: Limits) -> None:
        profile, _, children = measured
        if profile is None:
            if found != Limits():
                pytest.fail(
                    "heapprof: the test ended the recording itself, so its limit can't be checked",
                    pytrace=False,
                )
            item.heapprof_data = {"notes": ["ended the recording itself, so it has no numbers"]}
            return
        data = item.heapprof_data
        failures: List[str] = []
        verdicts: List[limits.Verdict] = []
        if found.memory is not None:
            verdicts.append(limits.judge_memory(profile, found.memory))
            verdicts += [limits.judge_memory(c.profile, found.memory, c.process) for c in children]
        # Then what holds the peak is shown already.
        is_above = any(verdict.failure for verdict in verdicts)
        if found.leak is not None:
            verdicts.append(limits.judge_leaks(profile, found))
        for verdict in verdicts:
            failures += [verdict.failure] if verdict.failure else []
            data["notes"] += [verdict.note] if verdict.note else []
        if self.peaks is not None:
            grown = self.peaks.judge(item.nodeid, data, self.options.tolerance)
            failures += [grown] if grown else []
            if grown and not is_above:
                profiles = [profile, *(child.profile for child in children)]
                failures += limits.at_peak(max(profiles, key=lambda one: one.total("peak_space")))
        if failures:
            pytest.fail("\n".join(failures), pytrace=False)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Puts the numbers into the report, which a worker of xdist sends to its controller."""
        outcome = yield
        data = getattr(item, "heapprof_data", None)
        if call.when == "call" and data is not None:
            outcome.get_result().heapprof_data = data

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Takes the numbers of a test."""
        data = getattr(report, "heapprof_data", None)
        if report.when != "call" or data is None:
            return
        self.data[report.nodeid] = data
        if self.peaks is not None and report.passed and "peak" in data:
            self.peaks.keep(report.nodeid, data)

    def pytest_sessionfinish(self) -> None:
        """Keeps the peaks for the next run."""
        if self.peaks is not None and not self.is_worker:
            self.peaks.write()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Shows the summary."""
        if self.options.hides_summary or not self.data:
            return
        terminalreporter.write_sep("=", "heapprof")
        is_sampled = self.options.period > 0
        for line in summary.lines(self.data, self.options.most, is_sampled):
            terminalreporter.write_line(line)


_RECORDED = (
    "heapprof: pytest itself is recorded already, and recordings of tests would forget that; start "
    "pytest without heapprof record, or say --heapprof-off"
)
