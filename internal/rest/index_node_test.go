package rest_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// A read that names an index which no node gave is refused for it, on every route and method that takes one. A wait for it would
// end at the node's limit, with DEADLINE_EXCEEDED.
func TestAnIndexThatNoNodeGaveIsTheClientsFault(t *testing.T) {
	eachWidth(t, func(t *testing.T, w *wide) {
		made := w.do(mail, "POST", "/v1/tasks", `{"queue":"q"}`).want(t, 201)
		w.do(mail, "PUT", "/v1/kv/ks/keys/key", "value").want(t, 200)
		w.do(mail, "POST", "/v1/repos", `{"name":"r"}`).want(t, 201)
		w.do(mail, "PUT", "/v1/collections/ws", `{"schema":[{"name":"role","type":"keyword"}]}`).want(t, 201)
		w.do(mail, "POST", "/v1/collections/ws/points:upsert", `{"points":[{"id":"w1","payload":{"text":"a"}}]}`).want(t, 200)
		task := made.text(t, "id")
		for _, index := range []string{"170512818", "9007199254740993", "18446744073709551615"} {
			for _, r := range []struct{ method, path, body string }{
				{"GET", "/v1/tasks/" + task + "?min_index=", ""},
				{"GET", "/v1/kv/ks/keys/key?min_index=", ""},
				{"GET", "/v1/kv/ks/keys/key?consistency=stale&min_index=", ""},
				{"GET", "/v1/kv/ks?min_index=", ""},
				{"GET", "/v1/kv/ks?consistency=stale&prefix=k&min_index=", ""},
				{"GET", "/v1/repos/r?min_index=", ""},
				{"GET", "/v1/repos/r/refs?min_index=", ""},
				{"GET", "/v1/repos/r/refs/heads/main?min_index=", ""},
				{"POST", "/v1/collections/ws/points:get", `{"ids":["w1","w2","w3","w4","w5"],"min_index":$}`},
				{"POST", "/v1/collections/ws/points:count", `{"stale":true,"min_index":$}`},
				{"POST", "/v1/matrix/search", `{"collection":"ws","query_text":"a","min_index":$}`},
				{"POST", "/v1/matrix/search", `{"collection":"ws","query_text":"a","consistency":"stale","min_index":$}`},
			} {
				path := r.path
				if r.body == "" {
					path += index
				}
				got := w.do(mail, r.method, path, strings.Replace(r.body, "$", `"`+index+`"`, 1))
				if got.status != 400 || got.text(t, "error", "code") != "INVALID_ARGUMENT" || got.text(t, "error", "field") != "min_index" ||
					!strings.Contains(got.text(t, "error", "message"), index) {
					t.Errorf("%s %s %s: %d %s", r.method, path, r.body, got.status, got.body)
				}
			}
		}
		w.refusesAnUnknownIndex(task)
	})
}

// refusesAnUnknownIndex calls the methods that take an index.
func (w *wide) refusesAnUnknownIndex(task string) {
	t := w.t
	const index = 170512818
	kv := pb.NewKVServiceClient(w.conn)
	ats := []*pb.At{{Partition: 0, Index: 1}}
	for p := range w.parts {
		ats = append(ats, &pb.At{Partition: uint32(p), Index: index})
	}
	for field, calls := range map[string]map[string]func() error{
		"min_index": {
			"task": func() error {
				_, err := w.tasks().Get(w.ctx, &pb.GetRequest{Id: task, MinIndex: index})
				return err
			},
			"key": func() error {
				_, err := kv.Get(w.ctx, &pb.KVGetRequest{Keyspace: "ks", Key: []byte("key"), MinIndex: index, Stale: true})
				return err
			},
			"refs": func() error {
				_, err := pb.NewRefServiceClient(w.conn).GetRef(w.ctx, &pb.GetRefRequest{Repo: "r", Name: "HEAD", MinIndex: index})
				return err
			},
			"points": func() error {
				_, err := pb.NewSearchServiceClient(w.conn).GetPoints(w.ctx, &pb.GetPointsRequest{Collection: "ws", Ids: []string{"w1"}, MinIndex: index})
				return err
			},
		},
		"min[": {
			"keys": func() error {
				_, err := kv.BatchGet(w.ctx, &pb.KVBatchGetRequest{Keyspace: "ks", Keys: [][]byte{[]byte("key")}, Min: ats})
				return err
			},
			"range": func() error {
				in, err := kv.Range(w.ctx, &pb.KVRangeRequest{Keyspace: "ks", Prefix: []byte("k"), Min: ats})
				if err == nil {
					_, err = in.Recv()
				}
				return err
			},
		},
	} {
		for what, call := range calls {
			err := call()
			if err == nil || errors.Is(err, io.EOF) {
				t.Errorf("%s: no refusal", what)
			} else if e := errorIn(t, err); e.GetCode() != "INVALID_ARGUMENT" || !strings.HasPrefix(e.GetField(), field) {
				t.Errorf("%s: %v", what, e)
			}
		}
	}
}

// Where a call reads several partitions with one index, that is of one of them: no partition that has fewer entries refuses it,
// or waits until it has them.
func TestAnIndexOfOnePartitionHoldsForReadsOfSeveral(t *testing.T) {
	w := openWide(t, 4)
	w.do(mail, "PUT", "/v1/collections/ws", `{"schema":[{"name":"role","type":"keyword"}]}`).want(t, 201)
	w.do(mail, "POST", "/v1/collections/ws/points:upsert", `{"points":[{"id":"w1","payload":{"text":"a"}},{"id":"w2","payload":{"text":"b"}}]}`).want(t, 200)
	var last string
	for range 40 { // one partition's log becomes longer than the others'
		last = w.do(mail, "PUT", "/v1/kv/ks/keys/key", "value").want(t, 200).text(t, "index")
	}
	for _, body := range []string{`"min_index":"` + last + `"`, `"consistency":"stale","min_index":"` + last + `"`} {
		got := w.do(mail, "POST", "/v1/matrix/search", `{"collection":"ws","query_text":"a",`+body+`}`).want(t, 200)
		if !strings.Contains(string(got.body), `"w1"`) || !strings.Contains(string(got.body), `"w2"`) {
			t.Errorf("%s: %s", body, got.body)
		}
	}
	w.do(mail, "POST", "/v1/collections/ws/points:get", `{"ids":["w1","w2"],"min_index":"`+last+`"}`).want(t, 200)
	w.do(mail, "POST", "/v1/collections/ws/points:count", `{"min_index":"`+last+`"}`).want(t, 200)
	for _, of := range []string{"", "consistency=stale&", "prefix=k&", "limit=1&"} {
		w.do(mail, "GET", "/v1/kv/ks?"+of+"min_index="+last, "").want(t, 200)
	}
}
