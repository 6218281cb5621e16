# expect: installed successfully
# expect: device cpu, parameters float64, loss float64
# expect: version 2\.0
"""The settings of Paddle 2.0: device, default dtype, versions, the check of the installation."""

import numpy as np
import paddle
import paddle.version

paddle.enable_static()
paddle.utils.run_check()
place = paddle.set_device("cpu")
paddle.set_default_dtype("float64")
assert paddle.get_default_dtype() == "float64"
paddle.utils.require_version("2.0.0")

x = paddle.static.data("x", [None, 3])
linear = paddle.nn.Linear(3, 2)
loss = paddle.mean(linear(x) + paddle.ones([2]))
exe = paddle.static.Executor(place)
exe.run(paddle.static.default_startup_program())
(value,) = exe.run(feed={"x": np.ones((4, 3))}, fetch_list=[loss])
names = (paddle.get_device(), linear.weight.dtype, value.dtype)
print("device %s, parameters %s, loss %s" % tuple(str(name).replace("torch.", "") for name in names))
assert paddle.compat.to_text(b"abc") == "abc"
assert not paddle.is_compiled_with_xpu()
numpy = paddle.utils.try_import("numpy")
assert numpy is np
print("version %s.%s" % (paddle.version.major, paddle.version.minor))
assert paddle.__version__ == paddle.version.full_version
