"""The table of data sets: file names, md5 of the original files, and what is generated if they are missing."""

# SPDX-License-Identifier: Apache-2.0
from argosy.engine.data.corpora import draw_pictures, draw_text
from argosy.engine.data.corpora.locate import Source

IMDB = Source(
    "imdb", {"aclImdb_v1.tar.gz": "7c2ac02c03563afcf9b574c7e56c153a"}, "reviews", draw_text.write_imdb
)
MOVIE_REVIEWS = Source(
    "sentiment",
    {"movie_reviews.zip": "155de2b77c6834dd8eea7cbe88e93acb"},
    "reviews",
    draw_text.write_movie_reviews,
)
IMIKOLOV = Source(
    "imikolov",
    {"simple-examples.tgz": "30177ea32e27c525793142b6bf2c8e2d"},
    "sentences",
    draw_text.write_imikolov,
)
MOVIELENS = Source(
    "movielens", {"ml-1m.zip": "c4d9eecfca2ab87c1945afe126590906"}, "ratings", draw_text.write_movielens
)
UCI_HOUSING = Source(
    "uci_housing",
    {"housing.data": "d4accdce7a25600298819f8e28e8d593"},
    "houses",
    draw_text.write_uci_housing,
)
WMT14 = Source("wmt14", {"wmt14.tgz": "0791583d57d5beb693b9414c5b36798c"}, "sentences", draw_text.write_wmt14)
WMT16 = Source(
    "wmt16", {"wmt16.tar.gz": "0c38be43600334966403524a40dcd81e"}, "sentences", draw_text.write_wmt16
)
CONLL05 = Source(
    "conll05st",
    {
        "conll05st-tests.tar.gz": "387719152ae52d60422c016e92a742fc",
        "wordDict.txt": "ea7fb7d4c75cc6254716f0177a506baa",
        "verbDict.txt": "0d2977293bbb6cbefab5b0f97db1e77c",
        "targetDict.txt": "d8c7f03ceb5fc2e5a0fa7503a4353751",
        "emb": "bf436eb0faa1f6f9103017f8be57cdb7",
    },
    "sentences",
    draw_text.write_conll05,
)
CIFAR10 = Source(
    "cifar-10",
    {"cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a"},
    "images",
    draw_pictures.write_cifar10,
    subfolder="cifar",
)
CIFAR100 = Source(
    "cifar-100",
    {"cifar-100-python.tar.gz": "eb9058c3a382ffc7106e4002c42a8d85"},
    "images",
    draw_pictures.write_cifar100,
    subfolder="cifar",
)
FASHION_MNIST = Source(
    "fashion-mnist",
    {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    "clothes",
    draw_pictures.write_fashion,
)
VOC2012 = Source(
    "voc2012",
    {"VOCtrainval_11-May-2012.tar": "6cd6e144f989b92b3379bac3b3de84fd"},
    "images",
    draw_pictures.write_voc2012,
)
