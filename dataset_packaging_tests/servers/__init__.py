"""Real servers on loopback for the tests: S3 (SeaweedFS, Ceph RGW), a proxy that breaks requests, Access Grants."""
