package server

import "github.com/millrace/millrace/internal/config"

// memory splits the server's memory.
func (o Options) memory() config.Memory {
	return config.PlanMemory(o.Memory, o.Shards, o.expectedPeers())
}

// GoMemory is what the Go runtime may take of the server's memory: the database's cache and memory tables lie outside of it.
func (o Options) GoMemory() int64 { return o.Memory - o.memory().Store }

// expectedPeers is how many other nodes memory is planned for. A cluster that is to grow, or whose members are not known
// yet, is planned as one of three.
func (o Options) expectedPeers() int {
	if !o.Cluster.Enabled() {
		return 0
	}
	return max(len(o.Cluster.Peers)-1, 2)
}
