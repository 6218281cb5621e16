# expect: padded \[\[\[1\], \[2\], \[0\]\], \[\[3\], \[4\], \[5\]\]\] lengths \[2, 3\]
# expect: unpadded \[1, 2, 3, 4, 5\] lod \[\[0, 2, 5\]\]
# expect: mask \[\[1, 1, 0\], \[1, 1, 1\]\]
# expect: average \[1.5, 4.0\] sqrt \[2.12, 6.93\] last \[2.0, 5.0\]
# expect: softmax sums \[1.0, 1.0\]
# expect: reversed \[2, 1, 5, 4, 3\]
# expect: windows \[\[1, 2\], \[2, 0\], \[3, 4\], \[4, 5\], \[5, 0\]\]
# expect: expanded \[10, 10, 20, 20, 20\] lod \[\[0, 2, 5\]\]
# expect: joined \[1, 2, 1, 2, 3, 4, 5, 3, 4, 5\] lengths \[\[4, 6\]\]
# expect: a fetch of ragged data as numpy raises
"""What the sequence layers of 1.8 do to two sequences, [1, 2] and [3, 4, 5]."""

import numpy as np
import paddle.fluid as fluid

x = fluid.data(name="x", shape=[None, 1], dtype="int64", lod_level=1)
f = fluid.layers.cast(x, "float32")
row = fluid.data(name="row", shape=[None, 1], dtype="int64")
pad_value = fluid.layers.assign(np.array([0], dtype="int64"))
padded, length = fluid.layers.sequence_pad(x=x, pad_value=pad_value)
fetches = {
    "padded": padded,
    "length": length,
    "unpadded": fluid.layers.sequence_unpad(padded, length),
    "mask": fluid.layers.sequence_mask(length),
    "average": fluid.layers.sequence_pool(f, "average"),
    "sqrt": fluid.layers.sequence_pool(f, "sqrt"),
    "last": fluid.layers.sequence_last_step(f),
    "softmax": fluid.layers.sequence_pool(fluid.layers.sequence_softmax(f), "sum"),
    "reversed": fluid.layers.sequence_reverse(x),
    "windows": fluid.layers.sequence_enumerate(x, win_size=2, pad_value=0),
    "expanded": fluid.layers.sequence_expand(row, x),
    "joined": fluid.layers.sequence_concat([x, x]),
}
exe = fluid.Executor(fluid.CPUPlace())
exe.run(fluid.default_startup_program())
tensor = fluid.LoDTensor()
tensor.set(np.array([[1], [2], [3], [4], [5]]), fluid.CPUPlace())
tensor.set_recursive_sequence_lengths([[2, 3]])
feed = {"x": tensor, "row": np.array([[10], [20]])}
dense = [name for name, variable in fetches.items() if variable.lod_level == 0]
ragged = [name for name in fetches if name not in dense]
out = dict(zip(dense, exe.run(feed=feed, fetch_list=[fetches[name] for name in dense])))
results = exe.run(feed=feed, fetch_list=[fetches[name] for name in ragged], return_numpy=False)
out.update(zip(ragged, results))


def flat(name):
    return [round(number, 2) for number in np.array(out[name]).ravel().tolist()]


print("padded", np.array(out["padded"]).tolist(), "lengths", flat("length"))
print("unpadded", flat("unpadded"), "lod", out["unpadded"].lod())
print("mask", np.array(out["mask"]).tolist())
print("average", flat("average"), "sqrt", flat("sqrt"), "last", flat("last"))
print("softmax sums", flat("softmax"))
print("reversed", flat("reversed"))
print("windows", np.array(out["windows"]).tolist())
print("expanded", flat("expanded"), "lod", out["expanded"].lod())
print("joined", flat("joined"), "lengths", out["joined"].recursive_sequence_lengths())
try:
    exe.run(feed=feed, fetch_list=[fetches["reversed"]])
except RuntimeError:
    print("a fetch of ragged data as numpy raises")
