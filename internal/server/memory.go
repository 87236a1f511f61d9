package server

import "github.com/millrace/millrace/internal/config"

// memory splits the server's memory into the shares of its parts.
func (o Options) memory() config.Memory {
	return config.PlanMemory(o.Memory, o.Shards, o.expectedPeers())
}

// GoMemory returns the memory limit for the Go runtime: the server's memory without the database's
// cache and memory tables, which are allocated outside of it.
func (o Options) GoMemory() int64 { return o.Memory - o.memory().Store }

// expectedPeers returns the number of other nodes that memory is planned for; 0 for a single-node
// server. A cluster is planned with two at least, as it may grow, or its members are not known yet.
func (o Options) expectedPeers() int {
	if !o.Cluster.Enabled() {
		return 0
	}
	return max(len(o.Cluster.Peers)-1, 2)
}
