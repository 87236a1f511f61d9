package stream

import (
	"slices"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
)

// home is the partition of a stream. It tells what of a frame is there; all else is refused, or left to the long way.
type home struct{ api.Home }

// alone reports whether the namespace has no other partition: then everything is here, whatever ids say.
func (h *home) alone() bool { return h.Of <= 1 }

// placeOfKey returns the index of a key's partition.
func (h *home) placeOfKey(key []byte) int {
	if h.alone() {
		return int(h.Partition.Index)
	}
	return int(core.PlaceKey(key, h.Of))
}

// hasKey reports whether a key is here.
func (h *home) hasKey(key []byte) bool { return h.placeOfKey(key) == int(h.Partition.Index) }

// hasTask reports whether a task that exists is here, by its id.
func (h *home) hasTask(id core.TaskID) bool {
	return h.alone() || id.Partition() == h.Partition.Index
}

// makes reports whether a task that has an id is made here: by its tag and key, and by that id.
func (h *home) makes(op *core.TaskCreate) bool {
	return h.alone() || op.Place(h.Of) == h.Partition.Index && op.ID.Partition() == h.Partition.Index
}

// directory lists the partitions of a namespace whose leaders this node knows.
func (d *door) directory(partitions []core.PartitionInfo) []*pb.PartitionAddress {
	out := make([]*pb.PartitionAddress, 0, len(partitions))
	for i, p := range partitions {
		if address, _, known := d.backend.Leader(p.Partition); known {
			out = append(out, &pb.PartitionAddress{Partition: uint32(i), Address: address})
		}
	}
	return out
}

// tellLeaders queues a Directory, unless the client knows all that it says, or one is queued. What it says is read when it
// is sent, so that one frame is enough however often leaders change meanwhile.
func (st *stream) tellLeaders() {
	now := st.d.placesOf(st.partitions)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed || st.telling || samePlaces(now, st.told) {
		return
	}
	st.telling = true
	o := outgoing{leaders: true, bytes: frameBytes * int64(1+len(now.Partitions)+len(now.Nodes))}
	st.out = append(st.out, o)
	st.weigh(o.bytes)
	wake(st.kick)
}

// placesOf is what a client is told of the partitions of its namespace when that changes, and of the members. Where there is
// one partition it follows the leader by the refusals of the others.
func (d *door) placesOf(partitions []core.PartitionInfo) *pb.Directory {
	out := &pb.Directory{Nodes: d.node.Nodes()}
	if len(partitions) > 1 {
		out.Partitions = d.directory(partitions)
	}
	return out
}

// samePlaces reports whether two Directories say the same.
func samePlaces(a, b *pb.Directory) bool {
	return slices.Equal(a.Nodes, b.Nodes) && slices.EqualFunc(a.Partitions, b.Partitions, func(a, b *pb.PartitionAddress) bool {
		return a.GetPartition() == b.GetPartition() && a.GetAddress() == b.GetAddress()
	})
}

// directoryFrame is the Directory that tellLeaders queued.
func (st *stream) directoryFrame() *pb.ServerFrame {
	now := st.d.placesOf(st.partitions)
	st.mu.Lock()
	st.told, st.telling = now, false
	st.mu.Unlock()
	st.tellLeaders() // what changed meanwhile
	return &pb.ServerFrame{Frame: &pb.ServerFrame_Directory{Directory: now}}
}
