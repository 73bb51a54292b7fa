"""The addresses and checksums of downloadable data sets."""

from __future__ import annotations

from shoal.data.fetch import Archive, Member, RemoteFile


def _files(folder: str, base: str, algorithm: str, digests: dict[str, str]) -> tuple[RemoteFile, ...]:
    return tuple(
        RemoteFile(f"{folder}/{name}", base + name, f"{algorithm}:{digest}")
        for name, digest in digests.items()
    )


# Loaders rely on the order within an entry: training before test, images before labels.
FILES: dict[str, tuple[RemoteFile, ...]] = {
    "mnist": _files(
        "mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "sha256",
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    "fashion_mnist": _files(
        "fashion_mnist",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "sha256",
        {
            "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
    "svhn": _files(
        "svhn",
        "http://ufldl.stanford.edu/housenumbers/",
        "md5",
        {
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
    ),
    "heart_disease": _files(
        "heart_disease",
        "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/",
        "sha256",
        {
            "processed.cleveland.data": "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8",
            "processed.hungarian.data": "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796",
            "processed.switzerland.data": "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314",
            "processed.va.data": "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f",
        },
    ),
}

_EMNIST_PARTS = ("train-images-idx3", "train-labels-idx1", "test-images-idx3", "test-labels-idx1")

ARCHIVES: dict[str, Archive] = {
    "cifar10": Archive(
        RemoteFile(
            "cifar-10-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
        ),
        tuple(
            Member(f"cifar-10-batches-bin/{name}", f"cifar-10-batches-bin/{name}", digest)
            for name, digest in {
                "data_batch_1.bin": "sha1:aadd24acce27caa71bf4b10992e9e7b2d74c2540",
                "data_batch_2.bin": "sha1:c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
                "data_batch_3.bin": "sha1:1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
                "data_batch_4.bin": "sha1:aab85764eb3584312d3c7f65fd2fd016e36a258e",
                "data_batch_5.bin": "sha1:26e2849e66a845b7f1e4614ae70f4889ae604628",
                "test_batch.bin": "sha1:67eb016db431130d61cd03c7ad570b013799c88c",
            }.items()
        ),
    ),
    "cifar100": Archive(
        RemoteFile(
            "cifar-100-binary.tar.gz",
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "md5:03b5dce01913d631647c71ecec9e9cb8",
        ),
        (
            Member(
                "cifar-100-binary/train.bin",
                "cifar-100-binary/train.bin",
                "sha1:e207cd2e05b73b1393c74c7f5e7bea451d63e08e",
            ),
            Member(
                "cifar-100-binary/test.bin",
                "cifar-100-binary/test.bin",
                "sha1:8fb6623e830365ff53cf14adec797474f5478006",
            ),
        ),
    ),
    "emnist": Archive(
        RemoteFile(
            "emnist/gzip.zip",
            "https://biometrics.nist.gov/cs_links/EMNIST/gzip.zip",
            "md5:58c8d27c78d21e728a6bc7b3cc06412e",
        ),
        # NIST publishes no checksums for the members
        tuple(
            Member(f"emnist/emnist-{split}-{part}-ubyte.gz", f"gzip/emnist-{split}-{part}-ubyte.gz")
            for split in ("digits", "letters", "balanced", "byclass", "bymerge", "mnist")
            for part in _EMNIST_PARTS
        ),
    ),
}
