package server

import "github.com/millrace/millrace/internal/config"

// memory splits the server's memory.
func (o Options) memory() config.Memory {
	return config.PlanMemory(o.Memory, o.Shards, o.expectedPeers())
}

// expectedPeers is how many other nodes memory is planned for. A cluster that is to grow, or whose members are not known
// yet, is planned as one of three.
func (o Options) expectedPeers() int {
	if !o.Cluster.Enabled() {
		return 0
	}
	return max(len(o.Cluster.Peers)-1, 2)
}
