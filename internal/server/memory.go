package server

import "github.com/millrace/millrace/internal/config"

// memory splits the server's memory.
func (o Options) memory() config.Memory {
	return config.PlanMemory(o.Memory, o.Shards, max(len(o.Cluster.Peers)-1, 0))
}
