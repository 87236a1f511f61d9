package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

func (r *rig) take(token string, rate int64) (pb.BackupService_TakeClient, context.CancelFunc) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(apitest.As(token))
	stream, err := pb.NewBackupServiceClient(r.conn).Take(ctx, &pb.TakeBackupRequest{Rate: rate, Objects: rate != 16})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(cancel)
	return stream, cancel
}

// partsOf reads a backup to its end.
func partsOf(t *testing.T, stream grpc.ServerStreamingClient[pb.BackupPart]) (got []*pb.BackupPart) {
	t.Helper()
	for {
		p, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return got
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, p)
	}
}

func TestABackupIsHeadShardsAndEnd(t *testing.T) {
	r := newRig(t, edge.Limits{})
	stream, _ := r.take("acme/backup", 0)
	got := partsOf(t, stream)
	if len(got) != 4 || got[0].GetHead().GetShards() != 1 || string(got[1].GetShard()) != "description" ||
		!bytes.Equal(got[2].GetData(), []byte("bytes")) || got[3].GetEnd() == nil {
		t.Errorf("parts %v", got)
	}
}

// Backups are of all tenants: who administers one of them may not have them.
func TestAnAdminOfATenantTakesNoBackup(t *testing.T) {
	r := newRig(t, edge.Limits{})
	stream, _ := r.take("acme/admin", 0)
	_, err := stream.Recv()
	apitest.ExpectCode(t, "an admin", err, codes.PermissionDenied)
}

func TestABackupIsRefusedByName(t *testing.T) {
	r := newRig(t, edge.Limits{})
	stream, _ := r.take("acme/backup", 13)
	_, err := stream.Recv()
	if e := apitest.ErrorOf(t, err); e.GetLimit() != "backups" || e.GetCode() != "RESOURCE_EXHAUSTED" {
		t.Errorf("a second one: %v", e)
	}
	stream, _ = r.take("acme/backup", -1)
	_, err = stream.Recv()
	if e := apitest.ErrorOf(t, err); e.GetField() != "rate" || e.GetCode() != "INVALID_ARGUMENT" {
		t.Errorf("a negative rate: %v", e)
	}
}

func TestABackupThatNobodyTakesIsCut(t *testing.T) {
	r := newRig(t, edge.Limits{})
	stream, _ := r.take("acme/backup", 1000)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	r.untilCut(stream, func() { r.clock.Advance(time.Minute) }, codes.Unavailable, "slow_consumer")
}

func TestABackupEndsWithItsToken(t *testing.T) {
	r := newRig(t, edge.Limits{})
	stream, _ := r.take("acme/backup", 1000)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	r.auth.Revoke("acme/backup")
	r.s.Live.Sweep()
	r.untilCut(stream, func() { r.clock.Advance(endWait) }, codes.Unauthenticated, "")
}

// untilCut moves time on until the handler has ended the stream, and only then reads what was sent before.
func (r *rig) untilCut(stream pb.BackupService_TakeClient, pass func(), want codes.Code, reason string) {
	r.t.Helper()
	for r.s.Streams.Value() > 0 {
		pass()
	}
	for {
		_, err := stream.Recv()
		if err == nil {
			continue
		}
		apitest.ExpectCode(r.t, "the backup", err, want)
		if e := apitest.ErrorOf(r.t, err); e.GetReason() != reason {
			r.t.Errorf("it ended as %v, want reason %q", e, reason)
		}
		return
	}
}

func TestABackupHasFilesOfRepositories(t *testing.T) {
	r := newRig(t, edge.Limits{})
	stream, _ := r.take("acme/backup", 14)
	got := partsOf(t, stream)
	want := core.Digest{1, 31: 2}
	if len(got) != 6 || !bytes.Equal(got[3].GetFile().GetDigest(), want[:]) || got[3].GetFile().GetSize() != 4 || !got[3].GetFile().GetIndex() ||
		!bytes.Equal(got[4].GetData(), []byte("pack")) || got[5].GetEnd() == nil {
		t.Errorf("parts %v", got)
	}
}

// endOf reads a backup to its end, which is an error.
func endOf(t *testing.T, stream pb.BackupService_TakeClient) *pb.Error {
	t.Helper()
	for {
		if _, err := stream.Recv(); err != nil {
			return apitest.ErrorOf(t, err)
		}
	}
}

// A program from before files of repositories came would leave them out without a word.
func TestACallerThatTakesNoFilesOfRepositoriesGetsNoBackupOfAny(t *testing.T) {
	r := newRig(t, edge.Limits{})
	stream, _ := r.take("acme/backup", 16)
	if e := endOf(t, stream); e.GetField() != "objects" || e.GetReason() != "not_supported" || e.GetCode() != "INVALID_ARGUMENT" {
		t.Errorf("%v", e)
	}
}

func TestABackupNamesWhatIsDamaged(t *testing.T) {
	r := newRig(t, edge.Limits{})
	stream, _ := r.take("acme/backup", 15)
	if e := endOf(t, stream); e.GetCode() != "DATA_LOSS" || !strings.Contains(e.GetMessage(), "3/x.pack") {
		t.Errorf("%v", e)
	}
}
