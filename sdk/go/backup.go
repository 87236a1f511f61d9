package millrace

import (
	"context"
	"errors"
	"io"
	"time"

	millracev1 "github.com/millrace/millrace/gen/millrace/v1"
)

// Backup is a backup on its way from a server: the state of all shards as files, in parts. It is for one goroutine.
type Backup struct {
	// Head is there from the beginning.
	Head BackupHead
	// stream brings the parts, and cancel ends it. ended says that the last part has come.
	stream interface {
		Recv() (*millracev1.BackupPart, error)
	}
	cancel context.CancelFunc
	ended  bool
}

// BackupHead says what a backup is of.
type BackupHead struct {
	Cluster string // id of the cluster, or of the directory of a server by itself; hexadecimal digits
	Node    string // name of the node that was asked
	Version string // of its binary
	Format  uint32 // newest format of entries that the state was made from
	// Shards is how many shards come, one after the other.
	Shards    int
	StartedAt time.Time
	Objects   bool // files of git repositories come too; a server that is too old sends none
}

// BackupPart is one part: it begins a shard, by saying which files it is made of, or a file of a git repository's objects, or
// has the next bytes of those files, of one file at a time. One of the three is set.
type BackupPart struct {
	// Shard is what the shard is made of, in the form that the command line's files have.
	Shard []byte
	File  *BackupFile
	Data  []byte
}

// BackupFile is a file of the objects of git repositories: a pack, or the index of one.
type BackupFile struct {
	Digest [32]byte // SHA-256 of its bytes
	// Size is in bytes. Index says that it is the index of a pack.
	Size  int64
	Index bool
}

// Backup begins a backup of the whole server or cluster, of all tenants (needs the scope backup). All that was acknowledged
// before the call is in it. Rate is how many bytes may come in a second; 0 leaves that to the server. The command line
// writes what comes into files, which it can verify and restore. It goes over gRPC only. Close must follow.
//
// Errors: ErrExhausted while another one is taken from the same node, or when that has no room on its disk.
func (c *Client) Backup(ctx context.Context, rate int64) (*Backup, error) {
	ctx, cancel := context.WithCancel(ctx)
	b := &Backup{cancel: cancel}
	stream, err := millracev1.NewBackupServiceClient(c.router).Take(ctx, &millracev1.TakeBackupRequest{Rate: rate, Objects: true})
	if err == nil {
		b.stream = stream
		err = b.begin()
	}
	if err != nil {
		cancel()
		e := fromStatus(err)
		if dialErr := c.hub.DialError(); dialErr != nil && ctx.Err() != nil {
			e.Code, e.Message = CodeUnavailable, "server "+c.opts.address+" is not reached: "+dialErr.Error()
		}
		return nil, e
	}
	return b, nil
}

// begin reads the head, which comes first.
func (b *Backup) begin() error {
	p, err := b.stream.Recv()
	if err != nil {
		return err
	}
	h := p.GetHead()
	b.Head = BackupHead{
		Cluster: h.GetCluster(), Node: h.GetNode(), Version: h.GetVersion(), Format: h.GetFormat(), Shards: int(h.GetShards()),
		StartedAt: h.GetStartedAt().AsTime(), Objects: h.GetObjects(),
	}
	return nil
}

// Next returns the next part, and io.EOF when all have come. Any other error means that the backup is not whole.
func (b *Backup) Next() (BackupPart, error) {
	if b.ended {
		return BackupPart{}, io.EOF
	}
	p, err := b.stream.Recv()
	if errors.Is(err, io.EOF) { // without its end
		return BackupPart{}, &Error{Code: CodeUnavailable, Message: "the backup was cut", Outcome: Refused}
	}
	if err != nil {
		return BackupPart{}, fromStatus(err)
	}
	switch part := p.Part.(type) {
	case *millracev1.BackupPart_Shard:
		return BackupPart{Shard: part.Shard}, nil
	case *millracev1.BackupPart_File:
		f := &BackupFile{Size: part.File.GetSize(), Index: part.File.GetIndex()}
		if copy(f.Digest[:], part.File.GetDigest()) != len(f.Digest) {
			return BackupPart{}, &Error{Code: CodeInternal, Message: "the backup has a file without a digest", Outcome: Refused}
		}
		return BackupPart{File: f}, nil
	case *millracev1.BackupPart_Data:
		return BackupPart{Data: part.Data}, nil
	case *millracev1.BackupPart_End:
		b.ended = true
		return BackupPart{}, io.EOF
	}
	return BackupPart{}, &Error{Code: CodeInternal, Message: "the backup has a part of an unknown kind", Outcome: Refused}
}

// Close ends a backup, whole or not.
func (b *Backup) Close() { b.cancel() }
