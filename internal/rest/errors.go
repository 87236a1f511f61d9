package rest

import (
	"net/http"

	"github.com/millrace/millrace/internal/api"
)

// errorsService begins the methods of groups of errors.
const errorsService = "/millrace.v1.ErrorService/"

// fingerprintForm is of the fingerprint of an error. All digits 0 stand for none.
var fingerprintForm = Form{Pattern: `^[0-9a-f]{16}$`, Not: `^0*$`}.filled()

// errorRoutes show groups of errors.
func errorRoutes() []*Route {
	return []*Route{{
		Method: http.MethodGet, Path: "/v1/errors", Native: errorsService + "List", Answer: "ListErrorsResponse", Status: statusOK,
		Query: []Param{
			{Name: "queue", Type: "string", Form: anyQueueForm, Doc: "Name of the queue whose tasks had the errors; default: of any."},
			{Name: "kind", Type: "string", Form: anyQueueForm, Doc: "Kind of the tasks; default: any."},
			{Name: "span", Type: "duration", Form: spans(api.HorizonSpan(defaults)), Doc: "Only groups of which an error was seen within it; default: all."},
			freshly,
		},
		Doc:    "List the errors of attempts in groups, those with the most errors first: errors are alike that have the same kind of task and code, or without a code messages that differ in digits alone. At most 1,000 groups are shown.",
		handle: (*restCall).errorList,
	}}
}
