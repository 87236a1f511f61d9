package rest

import (
	"net/http"

	"github.com/millrace/millrace/internal/api"
)

// cronService is the service of crons.
const cronService = "/millrace.v1.CronService/"

// cronRoutes are of crons, which make tasks by schedules.
func cronRoutes() []*Route {
	return []*Route{
		{
			Method: http.MethodGet, Path: "/v1/crons", Native: cronService + "List", Answer: "ListCronsResponse", Status: statusOK,
			Query: append([]Param{
				{Name: "prefix", Type: "string", Form: queueForm.filled(), Doc: "What their names begin with."},
				{Name: "runs", Type: "integer", Form: wholes[int64](0, api.CronRunsListed), Doc: "How many of the last runs of each to show in recent, 0 to 20; default 0."},
			}, stalePage...),
			Doc: "List crons by name, with their next slots and last runs.", handle: (*restCall).cronList,
		},
		{
			Method: http.MethodGet, Path: "/v1/crons/{cron}", Native: cronService + "Get", Answer: "Cron", Headers: []string{"ETag"}, Status: statusOK, Query: staleParams,
			Doc: "Read a cron. The ETag is its version.", handle: (*restCall).cronGet,
		},
		{
			Method: http.MethodPut, Path: "/v1/crons/{cron}", Repeat: RepeatCondition, Native: cronService + "Set", Body: "CronConfig", Answer: "Cron",
			Headers: []string{"ETag"}, Status: statusOK, Header: []Param{ifMatch},
			Doc:    "Make a cron, or replace it. With another schedule, zone, start or end its slots are counted from now on. The version rises only when something changes.",
			fields: fieldNames(cronConfigFields), handle: (*restCall).cronSet,
		},
		{
			Method: http.MethodDelete, Path: "/v1/crons/{cron}", Repeat: RepeatCondition, Native: cronService + "Delete",
			Status: []int{http.StatusNoContent}, Header: []Param{ifMatch},
			Doc: "Remove a cron with the list of its runs. Tasks that it made stay.", handle: (*restCall).cronDelete,
		},
		{
			Method: http.MethodPost, Path: "/v1/crons/{cron}:trigger", Repeat: RepeatByID, Native: cronService + "Trigger", Body: "TriggerCronRequest", Bare: true, Answer: "CronRun", Status: statusOK,
			Doc:    "Run a cron now, also one that is paused. Its next slot stays. What overlap says holds for it too: the answer tells what the run came to. With an id it can be repeated safely.",
			fields: fieldNames(triggerCronRequestFields), handle: (*restCall).cronTrigger,
		},
		{
			Method: http.MethodPost, Path: "/v1/crons/{cron}:pause", Repeat: RepeatSame, Native: cronService + "Pause", Answer: "PauseCronResponse", Status: statusOK,
			Doc: "Let the slots of a cron go by until it is resumed. Tasks that it made go on.", handle: (*restCall).cronPause,
		},
		{
			Method: http.MethodPost, Path: "/v1/crons/{cron}:resume", Repeat: RepeatSame, Native: cronService + "Resume", Answer: "ResumeCronResponse", Status: statusOK,
			Doc: "Let a paused cron go on. What becomes of the slots that went by, catch_up says.", handle: (*restCall).cronResume,
		},
		{
			Method: http.MethodPost, Path: "/v1/crons:preview", Repeat: RepeatRead, Native: cronService + "Preview", Body: "PreviewCronRequest", Answer: "PreviewCronResponse", Status: statusOK,
			Doc:    "Say in words when a schedule holds, and when it will next, and what the next changes of the clocks do to it. Nothing is stored.",
			fields: fieldNames(previewCronRequestFields), handle: (*restCall).cronPreview,
		},
		{
			Method: http.MethodGet, Path: "/v1/crons/{cron}/runs", Native: cronService + "Runs", Answer: "ListCronRunsResponse", Status: statusOK, Query: staleParams,
			Doc: "List the last runs of a cron, at most 100, the last one first.", handle: (*restCall).cronRuns,
		},
	}
}
