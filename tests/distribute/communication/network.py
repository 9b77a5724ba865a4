"""Hosts for tests, in network namespaces."""

from benchmarks.lib import cluster_hosts

PORT = 4711


def up(test, prefix, subnet, num_hosts, link="none"):
    """Starts hosts until the test is cleaned up; skips the test if that is impossible.

    Args:
        test: `tf.test.TestCase`.
        prefix: 1 to 6 letters that no other network of this machine uses.
        subnet: first three numbers of the hosts' addresses, likewise unused.
        num_hosts: number of hosts.
        link: as in `benchmarks.lib.cluster_hosts.Network.up`. Default: any rate.

    Returns:
        `benchmarks.lib.cluster_hosts.Network`.
    """
    try:
        return test.enter_context(cluster_hosts.Network(prefix, subnet, num_hosts).up(link))
    except cluster_hosts.Unavailable as error:
        test.skipTest(str(error))
