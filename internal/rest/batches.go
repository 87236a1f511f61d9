package rest

import (
	"context"
	"errors"
	"net/http"
	"time"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// batchesService is the service of batches.
const batchesService = "/millrace.v1.BatchService/"

// batchRoutes are of batches, which count tasks together.
func batchRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodPost, Path: "/v1/batches", Repeat: RepeatByID, Native: batchesService + "Open", Body: "OpenBatchRequest", Bare: true, Answer: "OpenBatchResponse", Status: statusMade,
			Doc:    "Open a batch, which tasks are then added to as they are created. With an id it can be repeated safely: a repetition is answered with 200.",
			fields: fieldNames(openBatchRequestFields), handle: (*restCall).batchOpen,
		},
		{
			Method: http.MethodGet, Path: "/v1/batches", Native: batchesService + "List", Answer: "ListBatchesResponse", Status: statusOK, Query: stalePage,
			Doc: "List batches, those that have finished too, the last opened first; partition after partition.", handle: (*restCall).batchList,
		},
		{
			Method: http.MethodGet, Path: "/v1/batches/{id}", Native: batchesService + "Get", Answer: "Batch", Status: statusOK, Query: staleParams,
			Doc: "Read a batch and how many of its tasks are in which state.", handle: (*restCall).batchGet,
		},
		{
			// It has the rule of Wait, though it may answer without waiting.
			Method: http.MethodGet, Path: "/v1/batches/{id}/result", Native: batchesService + "Wait", Answer: "Batch", Status: statusOK, waits: true,
			Doc:    "Read a batch, waiting until it has finished.",
			Query:  []Param{{Name: "wait", Type: "duration", Form: spans(api.Span{Max: defaults.ResultWaitMs}), Doc: "How long to wait for the end; default 0s."}},
			handle: (*restCall).batchResult,
		},
		{
			Method: http.MethodPost, Path: "/v1/batches/{id}:seal", Repeat: RepeatSame, Native: batchesService + "Seal", Answer: "SealBatchResponse", Status: statusOK,
			Doc:    "Say that a batch gets no more tasks. When all that it has have ended, it has finished and its follow-ups are made: at once if that is so by now.",
			handle: (*restCall).batchSeal,
		},
		{
			Method: http.MethodPost, Path: "/v1/batches/{id}:cancel", Repeat: RepeatSame, Native: batchesService + "Cancel", Body: "CancelBatchRequest", Bare: true, Answer: "CancelBatchResponse", Status: statusOK,
			Doc:    "Seal a batch and cancel its tasks, by a job as of POST /v1/bulk: those that wait are cancelled, those that run are asked to stop.",
			fields: fieldNames(cancelBatchRequestFields), handle: (*restCall).batchCancel,
		},
	}
}

// batchResult serves GET /v1/batches/{id}/result: it is woken when the batch finishes, and answers with how it stands when the time is
// over.
// It is written by hand: it waits.
func (c *restCall) batchResult() error {
	wait, fact := c.wait()
	if fact != nil {
		return fact
	}
	b, at, err := c.waitForBatch(wait)
	if err != nil {
		return err
	}
	return c.ok(http.StatusOK, at, func(w *jsonWriter) { writeBatch(w, b) })
}

func (c *restCall) waitForBatch(wait time.Duration) (*pb.Batch, *pb.At, error) {
	if wait > 0 {
		ctx, cancel := context.WithTimeout(c.ctx, wait)
		defer cancel()
		out, err := c.s.Batches().Wait(ctx, &pb.WaitBatchRequest{Id: c.params[0]})
		if err == nil {
			return out.GetBatch(), out.GetAt(), nil
		}
		// The time of the wait is over, not that of the request.
		over := errors.Is(ctx.Err(), context.DeadlineExceeded) && c.ctx.Err() == nil
		if !over || edge.Is[core.NotFound](err) {
			return nil, nil, err
		}
	}
	out, err := c.s.Batches().Get(c.ctx, &pb.GetBatchRequest{Id: c.params[0]})
	return out.GetBatch(), out.GetAt(), err
}
