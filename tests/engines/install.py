"""Install the Debian packages of the engines and the browser; `make test-engines` calls it.

Does nothing for packages that are installed. Where it cannot install one it prints why, and the tests of that engine
are skipped: it never fails.
"""

# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import subprocess

PACKAGES = {
    "mpirun.openmpi": ["openmpi-bin"],
    "mpirun.mpich": ["mpich"],
    "ssh": ["openssh-client"],
    "ip": ["iproute2"],
    "slurmctld": ["slurm-wlm"],
    "munged": ["munge"],
    "chromium": ["chromium", "fonts-dejavu-core"],
}
"""The packages of each program that the tests need; sshd is unpacked by the test itself, without installing it."""
APT_GET = ["apt-get", "-o", "DPkg::Lock::Timeout=300"]


def main() -> None:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    missing = [p for program, p in PACKAGES.items() if shutil.which(program, path=path) is None]
    packages = [name for names in missing for name in names]
    if not packages:
        print("the programs of all engines are installed")
    elif shutil.which("apt-get") is None:
        print(f"no apt-get here: install {' '.join(packages)} by hand, or their tests are skipped")
    elif os.geteuid() != 0:
        print(f"not root: run `apt-get install {' '.join(packages)}`, or their tests are skipped")
    else:
        install(packages)


def install(packages: list[str]) -> None:
    """Install them, with the lists of packages updated if that is needed."""
    command = [*APT_GET, "install", "-y", "--no-install-recommends", *packages]
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for prepare in ([], [*APT_GET, "update"]):
        if prepare:
            subprocess.run(prepare, env=environ, capture_output=True, check=False)
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            print(f"installed {' '.join(packages)}")
            return
    reason = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
    print(f"cannot install {' '.join(packages)}, so the tests that need them are skipped: {''.join(reason)}")


if __name__ == "__main__":
    main()
