import contextlib
import copy
import importlib.util
import os
import pickle
import tempfile
import unittest
from pathlib import Path

import stepscope
from stepscope import ProfileOptions


@contextlib.contextmanager
def in_a_folder():
    """Work in a directory of its own; its path."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="a b") as folder:
        os.chdir(folder)
        try:
            yield folder
        finally:
            os.chdir(before)


# What jax.profiler.ProfileOptions() of JAX 0.10.2 holds.
JAX_DEFAULTS = {
    "host_tracer_level": 2,
    "python_tracer_level": 1,
    "enable_hlo_proto": True,
    "include_dataset_ops": True,
    "duration_ms": 0,
    "start_timestamp_ns": 0,
    "repository_path": "",
    "session_id": "",
    "raise_error_on_start_failure": False,
    "advanced_configuration": {},
}


class Options(unittest.TestCase):
    def test_defaults_equal_those_of_jax(self):
        options = ProfileOptions()
        for name, value in JAX_DEFAULTS.items():
            self.assertEqual(getattr(options, name), value, name)
        self.assertEqual(repr(options), "ProfileOptions()")

    def test_unknown_option_suggests_the_nearest(self):
        options = ProfileOptions()
        for attempt in (
            lambda: setattr(options, "hots_tracer_level", 1),
            lambda: ProfileOptions(host_trace_level=1),
        ):
            with self.assertRaisesRegex(AttributeError, "did you mean 'host_tracer_level'") as caught:
                attempt()
            self.assertIsInstance(caught.exception, stepscope.StepscopeError)
        with self.assertRaisesRegex(AttributeError, "valid names: .*python_tracer_level"):
            options.qqqq = 1
        with self.assertRaises(AttributeError):
            del options.host_tracer_level

    def test_wrong_type_is_an_error(self):
        options = ProfileOptions()
        for name, value in (
            ("host_tracer_level", "2"),
            ("host_tracer_level", 2.0),
            ("host_tracer_level", None),
            ("duration_ms", True),
            ("enable_hlo_proto", 1),
            ("session_id", 3),
            ("advanced_configuration", 3),
        ):
            with self.assertRaises(TypeError, msg=name):
                setattr(options, name, value)
        self.assertEqual(options, ProfileOptions())

    def test_wrong_value_is_an_error(self):
        options = ProfileOptions()
        for name, value in (
            ("host_tracer_level", 4),
            ("host_tracer_level", -1),
            ("python_tracer_level", 2),
            ("duration_ms", -1),
            ("buffer_bytes", 1),
        ):
            with self.assertRaisesRegex(ValueError, name) as caught:
                setattr(options, name, value)
            self.assertIsInstance(caught.exception, stepscope.OptionValueError)

    def test_log_directory_that_is_no_path_is_an_error(self):
        for given, kind, says in (
            ("", ValueError, "log_dir: it is empty"),
            (None, TypeError, "log_dir: it must be a str or a path, not NoneType"),
            (5, TypeError, "log_dir: it must be a str or a path, not int"),
            (b"logs", TypeError, "log_dir: it must be a str or a path, not bytes"),
        ):
            for start in (stepscope.start_trace, stepscope.trace(given).__enter__):
                with self.assertRaisesRegex(kind, says) as raised:
                    start(given) if start is stepscope.start_trace else start()
                self.assertIsInstance(raised.exception, stepscope.StepscopeError)
        self.assertFalse(stepscope.is_recording())

    def test_remote_url_as_log_directory_is_an_error(self):
        with in_a_folder():
            for given in ("gs://bucket/logs", Path("gs://bucket/logs"), "s3://bucket", "hdfs://host/x"):
                for start in (
                    lambda given=given: stepscope.start_trace(given),
                    lambda given=given: stepscope.start_flight(given),
                    lambda given=given: stepscope.capture("localhost:1", given),
                ):
                    with self.assertRaisesRegex(stepscope.OptionValueError, "cannot write to .*\nhelp: "):
                        start()
            with self.assertRaisesRegex(stepscope.OptionValueError, "'host' is another machine"):
                stepscope.start_trace("file://host/tmp")
            self.assertEqual(list(Path().iterdir()), [])
        self.assertFalse(stepscope.is_recording())

    def test_file_url_as_log_directory_is_accepted(self):
        with in_a_folder() as folder:
            for given in (
                Path(folder, "1").as_uri(),
                f"file:{folder}/2",
                f"file://localhost{folder}/3",
                Path(f"file://{folder}/4".replace(" ", "%20")),
                "5:6",
            ):
                with stepscope.trace(given):
                    pass
            self.assertEqual(sorted(path.name for path in Path().iterdir()), ["1", "2", "3", "4", "5:6"])

    def test_port_that_is_no_integer_is_an_error(self):
        for given, kind, says in (
            ("9012", TypeError, "port must be int, not str"),
            (-1, ValueError, "no port -1\nhelp: give one of"),
            (2**70, ValueError, "no port"),
            (99_999_999, RuntimeError, "port 99999999: ports are 1 to 65535"),
        ):
            with self.assertRaisesRegex(kind, says) as raised:
                stepscope.start_server(given)
            self.assertIsInstance(raised.exception, stepscope.StepscopeError)

    @unittest.skipIf(importlib.util.find_spec("torch"), "torch is here")
    def test_missing_framework_error_names_the_function_that_needs_it(self):
        import stepscope.jax
        import stepscope.lightning
        import stepscope.torch

        for use, says in (
            (
                stepscope.jax.device_memory_profile,
                "device_memory_profile: jax is not installed\nhelp: pip install jax",
            ),
            (stepscope.jax.install, "install: jax is not installed"),
            (
                lambda: stepscope.torch.profile,
                "stepscope.torch.profile: torch is not installed\nhelp: pip install torch",
            ),
            (lambda: stepscope.torch.schedule, "stepscope.torch.schedule: torch is not"),
            (stepscope.lightning.PyTorchProfiler, "PyTorchProfiler: torch is not"),
            (stepscope.lightning.XLAProfiler, "XLAProfiler: torch_xla is not"),
        ):
            with self.assertRaisesRegex(ModuleNotFoundError, says):
                use()

    def test_levels_accept_what_jax_accepts(self):
        import operator

        class Index:
            def __index__(self):
                return 1

        options = ProfileOptions(python_tracer_level=False, host_tracer_level=Index())
        self.assertEqual(
            (options.python_tracer_level, options.host_tracer_level), (0, operator.index(Index()))
        )
        self.assertNotIsInstance(options.python_tracer_level, bool)

    def test_advanced_configuration_is_checked_on_every_change(self):
        options = ProfileOptions(advanced_configuration={"tpu_trace_mode": "TRACE_COMPUTE"})
        options.advanced_configuration["gpu_pm_sample_interval_us"] = 100
        options.advanced_configuration |= {"profile_subprocesses": True}
        self.assertEqual(
            options.advanced_configuration,
            {
                "tpu_trace_mode": "TRACE_COMPUTE",
                "gpu_pm_sample_interval_us": 100,
                "profile_subprocesses": True,
            },
        )
        advanced = options.advanced_configuration
        with self.assertRaisesRegex(AttributeError, "did you mean 'tpu_trace_mode'"):
            advanced["tpu_trace_mod"] = 1
        with self.assertRaisesRegex(AttributeError, "did you mean 'profile_subprocesses'"):
            advanced.update(profile_subprocess=True)
        with self.assertRaisesRegex(ValueError, "did you mean 'TRACE_COMPUTE'"):
            advanced["tpu_trace_mode"] = "TRACE_COMPUT"
        for key, value, says in (
            ("gpu_pm_sample_buffer_size_per_gpu_mb", 4097, "1 to 4096, not 4097"),
            ("max_trace_buffers", 0, "1 to 4294967295, not 0"),
            ("gpu_max_callback_api_events", -1, "0 or more, not -1"),
            ("tpu_power_trace_level", 3, "0 to 2, not 3"),
            ("tpu_power_trace_level", "POWER_TRACE_SP", "did you mean 'POWER_TRACE_SPI'"),
            ("tpu_watched_sync_flag_mask", "1,x", "'x' is not an integer from 0 to 4294967295"),
            ("tpu_watched_sync_flag_mask", "1,4294967296", "'4294967296' is not an integer"),
        ):
            with self.assertRaisesRegex(ValueError, says):
                advanced[key] = value
        for key, value in (
            (3, 1),
            ("profile_subprocesses", 1),
            ("max_trace_buffers", True),
            ("tpu_sc_dma", "on"),
        ):
            with self.assertRaises(TypeError):
                advanced[key] = value
        self.assertEqual(len(advanced), 3)
        for value in ("POWER_TRACE_SPI", 2):
            advanced["tpu_power_trace_level"] = value
        for value in ("1, 2", "3", 3):
            advanced["tpu_watched_sync_flag_mask"] = value

    def test_copies_of_options_are_independent(self):
        options = ProfileOptions(host_tracer_level=3, advanced_configuration={"max_trace_buffers": 2})
        for other in (copy.copy(options), copy.deepcopy(options), pickle.loads(pickle.dumps(options))):
            self.assertEqual(other, options)
            other.advanced_configuration["max_trace_buffers"] = 3
            other.host_tracer_level = 1
        self.assertEqual(options.host_tracer_level, 3)
        self.assertEqual(options.advanced_configuration, {"max_trace_buffers": 2})
        self.assertNotEqual(options, ProfileOptions())


if __name__ == "__main__":
    unittest.main()
