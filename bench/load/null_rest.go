package load

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	millrace "github.com/millrace/millrace/sdk/go"
)

// handler answers the requests of the REST driver: create, claim and complete.
func (n *null) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/tasks", func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Queue   string          `json:"queue"`
			Payload json.RawMessage `json:"payload"`
		}
		if !readInto(w, r, &in) {
			return
		}
		// The server makes the id, since the request has none.
		id := millrace.NewID()
		n.add([]*pb.TaskSpec{{Id: id, Queue: in.Queue, Kind: in.Queue, Payload: in.Payload}})
		answer(w, http.StatusCreated, `{"id":%q}`, id)
	})
	mux.HandleFunc("POST /v1/tasks:claim", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // nothing of it decides anything
		a := n.take()
		if a == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(w, http.StatusOK, `{"tasks":[{"id":%q,"token":"%d","payload":%s}]}`, a.Id, a.Token, a.Payload)
	})
	mux.HandleFunc("POST /v1/tasks/{id}/complete", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // nothing of it decides anything
		answer(w, http.StatusOK, `{"state":"completed"}`)
	})
	return mux
}

// readInto decodes a request's body, or answers 400 and returns false.
func readInto(w http.ResponseWriter, r *http.Request, v any) bool {
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
	return err == nil
}

// answer writes an answer in JSON.
func answer(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.Copy(w, strings.NewReader(fmt.Sprintf(format, args...))) // a client that left needs no answer
}

// take returns the oldest task that waits, or nil.
func (n *null) take() *pb.Assignment {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.ready) == 0 {
		return nil
	}
	a := n.ready[0]
	n.ready = n.ready[1:]
	return a
}
