package api

import (
	"context"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// protectedAsks are calls that would tell of a protected field, and whether they do so of texts or of the gate of a kind.
func protectedAsks(client pb.SearchServiceClient) map[string]func(ctx context.Context) error {
	search := func(ctx context.Context, in *pb.SearchRequest) error {
		in.Collection = "ws"
		_, err := client.Search(ctx, in)
		return err
	}
	count := func(ctx context.Context, g *pb.Gate) error {
		_, err := client.CountPoints(ctx, &pb.CountPointsRequest{Collection: "ws", Gate: g})
		return err
	}
	return map[string]func(ctx context.Context) error{
		"texts: words": func(ctx context.Context) error {
			return search(ctx, &pb.SearchRequest{QueryText: "salary", Explain: true})
		},
		"texts: own vector": func(ctx context.Context) error {
			return search(ctx, &pb.SearchRequest{Vector: []float32{1, 0}, Model: "m"})
		},
		"texts: recorded": func(ctx context.Context) error { return search(ctx, &pb.SearchRequest{QueryText: "x", Record: true}) },
		"texts: vectors": func(ctx context.Context) error {
			_, err := client.GetPoints(ctx, &pb.GetPointsRequest{Collection: "ws", Ids: []string{"a"}, Vectors: true})
			return err
		},
		"texts, role, credential, block: recording": func(ctx context.Context) error {
			_, err := client.GetRecording(ctx, &pb.GetRecordingRequest{SearchId: showSearchID(7, 9)})
			return err
		},
		"texts, role: search": func(ctx context.Context) error {
			return search(ctx, &pb.SearchRequest{QueryText: "x", Gate: &pb.Gate{Roles: []string{"spy"}}})
		},
		"role: count":       func(ctx context.Context) error { return count(ctx, &pb.Gate{Roles: []string{"spy"}}) },
		"role: any":         func(ctx context.Context) error { return count(ctx, &pb.Gate{Roles: []string{"spy"}, RoleMode: "any"}) },
		"credential: count": func(ctx context.Context) error { return count(ctx, &pb.Gate{CredentialsAll: []string{"clearance"}}) },
		"block: count":      func(ctx context.Context) error { return count(ctx, &pb.Gate{Client: "acme"}) },
	}
}

// Protected fields are asked neither by words, vectors, gates nor recordings without their scope, and with it all of these work.
func TestProtectedFieldsAreNotAskedWithoutTheirScope(t *testing.T) {
	for kind, def := range map[string]func(*core.Collection){
		"none": func(*core.Collection) {},
		"texts": func(d *core.Collection) {
			d.Fields = append(d.Fields, core.SchemaField{Name: "cv", Type: core.FieldText, Protected: true})
			d.Texts = []core.TextField{{Name: "title", Weight: 100}, {Name: "cv", Weight: 100}}
		},
		"role": func(d *core.Collection) {
			d.Fields[1].Gate = core.GateRole
		},
		"credential": func(d *core.Collection) {
			d.Fields = append(d.Fields, core.SchemaField{Name: "c", Type: core.FieldCredential, Gate: core.GateCredential, Protected: true})
		},
		"block": func(d *core.Collection) { d.Fields[1].Gate = core.GateBlock },
	} {
		r := newRig(t, edge.Limits{})
		made := apitest.Definition()
		def(&made)
		r.n.Defined = &made
		if _, err := r.n.Namespace(context.Background(), "acme", "default", true); err != nil {
			t.Fatal(err)
		}
		for name, ask := range protectedAsks(pb.NewSearchServiceClient(r.conn)) {
			tells := kind != "none" && strings.Contains(name[:strings.Index(name, ":")], kind)
			err := ask(apitest.As("acme/search:read"))
			switch {
			case tells && (err == nil || apitest.ErrorOf(t, err).GetCode() != "PERMISSION_DENIED" || apitest.ErrorOf(t, err).GetMessage() != "scope search:protected is missing"):
				t.Errorf("%s protected, %s without the scope: %v", kind, name, err)
			case !tells && err != nil:
				t.Errorf("%s protected, %s: %v", kind, name, err)
			}
			if err := ask(apitest.As("acme/search:read,search:protected")); err != nil {
				t.Errorf("%s protected, %s with the scope: %v", kind, name, err)
			}
		}
	}
}

// What a text of a protected field is embedded for is kept apart, for /v1/embed tells what was known.
func TestProtectedTextsAreEmbeddedApart(t *testing.T) {
	for _, protected := range []bool{false, true} {
		r := newRig(t, edge.Limits{})
		made := apitest.Definition()
		made.Fields = append(made.Fields, core.SchemaField{Name: "cv", Type: core.FieldText, Protected: protected})
		made.Texts = []core.TextField{{Name: "cv", Weight: 100}}
		r.n.Defined = &made
		if _, err := r.n.Namespace(context.Background(), "acme", "default", true); err != nil {
			t.Fatal(err)
		}
		e := r.s.o.Embedder.(*apitest.Embedder)
		point := &pb.Point{Id: "a", Payload: []byte("{}")}
		if _, err := pb.NewSearchServiceClient(r.conn).UpsertPoints(apitest.As("acme/all"), &pb.UpsertPointsRequest{Collection: "ws", Points: []*pb.Point{point}}); err != nil {
			t.Fatal(err)
		}
		if len(e.Last.Texts) != 1 || e.Last.Protected != protected {
			t.Errorf("protected %v: points are embedded by %+v", protected, e.Last)
		}
		e.Last = core.EmbedRequest{}
		if _, err := pb.NewCommitServiceClient(r.conn).Commit(apitest.As("acme/all"), &pb.CommitRequest{Ops: []*pb.Op{
			{Op: &pb.Op_VectorUpsert{VectorUpsert: &pb.VectorUpsert{Collection: "ws", Point: point}}},
		}}); err != nil {
			t.Fatal(err)
		}
		if len(e.Last.Texts) != 1 || e.Last.Protected != protected {
			t.Errorf("protected %v: the point of a commit is embedded by %+v", protected, e.Last)
		}
	}
}

// A definition that this node's copy lacks is read, so that no protected field is shown for want of it.
func TestPointsOfACollectionThatIsNotAtHandShowNoProtectedField(t *testing.T) {
	r := newRig(t, edge.Limits{})
	r.n.Undefined = true
	if _, err := r.n.Namespace(context.Background(), "acme", "default", true); err != nil {
		t.Fatal(err)
	}
	got, err := pb.NewSearchServiceClient(r.conn).GetPoints(apitest.As("acme/search:read"), &pb.GetPointsRequest{Collection: "ws", Ids: []string{"a"}})
	if err != nil || string(got.GetPoints()[0].GetPayload()) != `{"role":"a"}` {
		t.Errorf("%v, %v", got, err)
	}
}
