# expect: step 5
# expect: restored 1 of 1
# expect: no such file
# suite: fast
"""Checkpoints through fleet's file systems: LocalFS, and HDFSClient for a URL."""

import os

import numpy as np
import paddle
import paddle.static as static
from paddle.distributed.fleet.utils import HDFSClient, LocalFS
from paddle.distributed.fleet.utils.fs import FSFileExistsError, FSFileNotExistsError

paddle.enable_static()
x = static.data("x", [None, 4])
loss = paddle.mean(static.nn.fc(x, 1))
paddle.optimizer.SGD(0.1).minimize(loss)
exe = static.Executor(paddle.CPUPlace())
exe.run(static.default_startup_program())
for step in range(6):
    exe.run(feed={"x": np.ones((2, 4), "float32")}, fetch_list=[loss])
print("step %d" % step)

local = LocalFS()
local.mkdirs("checkpoint")
static.save(static.default_main_program(), "checkpoint/model")

remote = HDFSClient("/opt/hadoop", {"fs.default.name": "memory://", "hadoop.job.ugi": "user,secret"})
assert remote.need_upload_download() and not local.need_upload_download()
remote.mkdirs("/models")
remote.upload("checkpoint", "/models/tmp")
remote.mv("/models/tmp", "/models/0")
try:
    remote.upload("checkpoint", "/models/0")
except FSFileExistsError:
    local.delete("checkpoint")
assert not local.is_exist("checkpoint")

dirs = remote.list_dirs("/models")
remote.download("/models/" + dirs[-1], "restored")
names = [name for name in local.ls_dir("restored")[1] if name.endswith(".pdparams")]
static.load(static.default_main_program(), os.path.join("restored", "model"), exe)
print("restored %d of %d" % (len(names), 1))
try:
    remote.download("/models/7", "restored7")
except FSFileNotExistsError:
    print("no such file")
