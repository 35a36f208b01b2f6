"""What is deployed: files of `deploy/`, servers, clusters of several nodes, and the faults that they meet."""
