//go:build !mutants

package replog

import pb "go.etcd.io/raft/v3/raftpb"

// pretend and believe are planted bugs of builds that prove that tests find them.
func (k *Core) pretend(*pb.Message) {}
func (k *Core) believe()            {}
