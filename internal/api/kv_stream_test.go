package api

import (
	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// putsFrame is a frame of puts of keys, each with its own name as the value.
func putsFrame(seq, commitSeq uint64, keys ...string) *pb.ClientFrame {
	f := &pb.PutsFrame{Seq: seq, Keyspace: "ks", CommitSeq: commitSeq}
	for _, key := range keys {
		f.Items = append(f.Items, &pb.PutItem{Key: []byte(key), Value: []byte(key)})
	}
	return &pb.ClientFrame{Frame: &pb.ClientFrame_Puts{Puts: f}}
}
