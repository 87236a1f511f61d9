package api

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/errs"
)

// backupTick is how often a backup looks whether its client still reads, as a stream does.
const backupTick = 10 * time.Second

// Backups gives backups of the whole server.
type Backups interface {
	// Backup gives sink everything that was acknowledged before the call, at most rate bytes in a second; 0: its own bound. It
	// ends soon when ctx does.
	Backup(ctx context.Context, rate int64, sink core.BackupSink) error
}

// backupService streams backups to operators.
type backupService struct {
	pb.UnimplementedBackupServiceServer
	s       *Server // what all services share
	backups Backups // nil: none can be taken
}

// Take streams one backup.
func (bs *backupService) Take(in *pb.TakeBackupRequest, ss grpc.ServerStreamingServer[pb.BackupPart]) error {
	if in.GetRate() < 0 {
		return edge.Invalid("rate", "must not be negative")
	}
	if bs.backups == nil {
		return core.Invalid{Field: "method", Reason: "not_supported", Message: "this server takes no backups"}
	}
	// The node stops reading when the call ends, whatever ended it.
	ctx, cancel := context.WithCancel(ss.Context())
	defer cancel()
	b := &backupStream{s: bs.s, ss: ss, objects: in.GetObjects()}
	ended := make(chan error, 1)
	// Not waited for when the reader takes nothing: the end of the stream ends a send that is stuck, and with it the backup.
	bs.s.Work.Go(func() { ended <- b.run(ctx, bs.backups, in.GetRate()) })
	return b.watch(ended)
}

// backupStream is one backup on its way to an operator.
type backupStream struct {
	s  *Server
	ss grpc.ServerStreamingServer[pb.BackupPart]
	// objects says that the caller takes files of repositories.
	objects bool

	mu sync.Mutex // guards the fields below
	// busy says that a part is being sent, since when it was given to the transport, by the boot clock.
	busy  bool
	since time.Duration // when the part was given to the transport, by the boot clock
}

// run has the node give the backup, at most rate bytes in a second, and ends it.
func (b *backupStream) run(ctx context.Context, from Backups, rate int64) (err error) {
	defer b.s.Recovered(&err)
	// Damage is shown in full to operators: they have to know which file it is in.
	if err := from.Backup(ctx, rate, b); edge.Is[*errs.Corruption](err) {
		return edge.Show(err)
	} else if err != nil {
		return err
	}
	// The end is a part of its own: a client knows from it that the backup is whole.
	return b.send(&pb.BackupPart{Part: &pb.BackupPart_End{End: &pb.BackupEnd{}}})
}

// watch returns how the backup ended, or why it must end now: its reader takes nothing, the server stops.
func (b *backupStream) watch(ended <-chan error) error {
	tick := b.s.o.Clock.NewTimer(backupTick)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			return err
		case <-b.s.Life.Done():
			return core.Unavailable{Reason: "stopping"}
		case <-tick.C():
			if fact := b.check(); fact != nil {
				return fact
			}
			tick.Reset(backupTick)
		}
	}
}

// check says that the client has taken nothing for too long, if so.
func (b *backupStream) check() core.Fact {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.busy && b.s.o.Clock.Boot()-b.since >= time.Duration(b.s.Limits.SendStallMs)*time.Millisecond {
		return core.Unavailable{Reason: "slow_consumer", Limit: "send_stall_ms"}
	}
	return nil
}

// send sends a part, and notes since when: the client may take as long as send_stall_ms.
func (b *backupStream) send(p *pb.BackupPart) error {
	b.mu.Lock()
	b.busy, b.since = true, b.s.o.Clock.Boot()
	b.mu.Unlock()
	err := b.ss.Send(p)
	b.mu.Lock()
	b.busy = false
	b.mu.Unlock()
	return err
}

// Head sends what the backup is of.
func (b *backupStream) Head(h core.BackupHead) error {
	return b.send(&pb.BackupPart{Part: &pb.BackupPart_Head{Head: &pb.BackupHead{
		Cluster: h.Cluster, Node: h.Node, Version: h.Version, Format: h.Format, Shards: uint32(h.Shards),
		StartedAt: timestamppb.New(time.UnixMilli(h.StartedMillis)), Objects: h.Objects,
	}}})
}

// Shard begins a shard. The longest description, of 65,536 files, is 1.7 MiB: less than a message may be.
func (b *backupStream) Shard(description []byte) error {
	return b.send(&pb.BackupPart{Part: &pb.BackupPart_Shard{Shard: description}})
}

// File begins a file of a repository's objects.
func (b *backupStream) File(f core.BackupFile) error {
	// An old client would take the backup for whole without them.
	if !b.objects {
		return core.Invalid{
			Field: "objects", Reason: "not_supported",
			Message: "must be set: this server has objects of git repositories, which the caller would leave out; use a newer one",
		}
	}
	return b.send(&pb.BackupPart{Part: &pb.BackupPart_File{File: &pb.BackupFile{Digest: f.Digest[:], Size: f.Size, Index: f.Index}}})
}

// Data sends the next bytes.
func (b *backupStream) Data(part []byte) error {
	return b.send(&pb.BackupPart{Part: &pb.BackupPart_Data{Data: part}})
}
