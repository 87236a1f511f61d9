package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// importBatch is the number of points of one request. importLine bounds a line of a JSONL file in
// bytes, so that a file without line feeds does not fill the memory.
const (
	importBatch = 100
	importLine  = 8 << 20 // longest line of a JSONL file
)

// pointReader returns the next point of a file. io.EOF says that there are no more. An error names
// the line.
type pointReader func() (millrace.Point, error)

// searchImportCmd makes the command that stores the points of a file. Points are stored under the
// ids of the file, so a second run after an error replaces what the first one stored.
func (a *app) searchImportCmd() *cobra.Command {
	var format, idField string
	c := &cobra.Command{
		Use:   "import COLLECTION FILE|-",
		Short: "Store the points of a JSONL or CSV file; repeating it is safe",
		Long: `Import reads a point per line. A line of JSONL is {"id", "payload", "vector"?, "model"?}, or with --id any object, one
field of which is the id. A CSV file has a header; its cells are numbers, true, false or text; empty cells are left out.`,
		Example: `  millrace search import notes notes.jsonl
  millrace search import workers workers.csv --id employee_no`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			in, end, err := openInput(c, args[1])
			if err != nil {
				return err
			}
			defer end()
			if format == "" {
				if format = "jsonl"; strings.HasSuffix(args[1], ".csv") {
					format = "csv"
				}
			}
			read, err := pointsOf(in, format, idField)
			if err != nil {
				return err
			}
			return a.waiting(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				n, err := importPoints(ctx, client.Collection(args[0]), read)
				if err != nil {
					return fmt.Errorf("after %d points: %w", n, err)
				}
				return a.print(map[string]int{"stored": n}, func(w io.Writer) { fmt.Fprintf(w, "stored %d points\n", n) })
			})
		},
	}
	c.Flags().StringVar(&format, "format", "", "jsonl or csv; default by the name of the file")
	c.Flags().StringVar(&idField, "id", "", "field that holds the id; default id")
	return c
}

// pointsOf returns a reader for the points of in. format must be jsonl or csv. An empty idField
// means the field id of a CSV file; in JSONL it means that each line is a point in the form of the
// API.
func pointsOf(in io.Reader, format, idField string) (pointReader, error) {
	switch format {
	case "jsonl":
		lines := bufio.NewScanner(in)
		lines.Buffer(make([]byte, 0, 64<<10), importLine)
		return jsonPoints(lines, idField), nil
	case "csv":
		if idField == "" {
			idField = "id"
		}
		return csvPoints(csv.NewReader(in), idField)
	}
	return nil, usageError{fmt.Errorf("--format: %q is neither jsonl nor csv", format)}
}

// jsonPoints reads points from lines of JSON. Without idField a line has the fields of a point.
// With it a line is any object: it becomes the payload as a whole, and the text or number in
// idField is the point's id. Empty lines are skipped.
func jsonPoints(lines *bufio.Scanner, idField string) pointReader {
	number := 0
	return func() (p millrace.Point, err error) {
		for lines.Scan() {
			number++
			if len(strings.TrimSpace(lines.Text())) == 0 {
				continue
			}
			if idField == "" {
				var doc struct {
					ID      string          `json:"id"`
					Payload json.RawMessage `json:"payload"`
					Vector  []float32       `json:"vector"`
					Model   string          `json:"model"`
				}
				if err := json.Unmarshal(lines.Bytes(), &doc); err != nil {
					return p, fmt.Errorf("line %d: %w", number, err)
				}
				p = millrace.Point{ID: doc.ID, Vector: doc.Vector, Model: doc.Model}
				if len(doc.Payload) > 0 {
					p.Payload = doc.Payload
				}
				return p, nil
			}
			var doc map[string]json.RawMessage
			if err := json.Unmarshal(lines.Bytes(), &doc); err != nil {
				return p, fmt.Errorf("line %d: %w", number, err)
			}
			var id any
			if err := json.Unmarshal(doc[idField], &id); err != nil {
				return p, fmt.Errorf("line %d: no field %s", number, idField)
			}
			// The id is the text of the field, or the digits of a number. The scanner uses its
			// buffer again, so the line is copied.
			return millrace.Point{ID: strings.Trim(string(doc[idField]), `"`), Payload: json.RawMessage(append([]byte{}, lines.Bytes()...))}, nil
		}
		if err := lines.Err(); err != nil {
			return p, fmt.Errorf("line %d: %w", number+1, err)
		}
		return p, io.EOF
	}
}

// csvPoints reads points from the rows of a CSV file. The header names the fields of the payload;
// the column idField is the id and is not part of the payload. A cell that is valid JSON, such as a
// number or true, keeps its type; any other is text; an empty one is left out.
func csvPoints(r *csv.Reader, idField string) (pointReader, error) {
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	at := -1
	for i, name := range head {
		if name == idField {
			at = i
		}
	}
	if at < 0 {
		return nil, usageError{fmt.Errorf("--id: the file has no column %s", idField)}
	}
	return func() (p millrace.Point, err error) {
		row, err := r.Read()
		if err != nil {
			return p, err
		}
		payload := make(map[string]any, len(row))
		for i, cell := range row {
			if i == at || cell == "" {
				continue
			}
			var v any
			if json.Unmarshal([]byte(cell), &v) != nil {
				payload[head[i]] = cell
				continue
			}
			payload[head[i]] = json.RawMessage(cell)
		}
		return millrace.Point{ID: row[at], Payload: payload}, nil
	}, nil
}

// importPoints stores points in batches and returns how many were stored. It stops at the first
// point that is refused; the points before it, and others of the same batch, stay stored.
func importPoints(ctx context.Context, k millrace.Collection, read pointReader) (stored int, err error) {
	for {
		var batch []millrace.Point
		for len(batch) < importBatch {
			p, err := read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return stored, err
			}
			batch = append(batch, p)
		}
		if len(batch) == 0 {
			return stored, nil
		}
		got, err := k.Upsert(ctx, batch...)
		if err != nil {
			return stored, err
		}
		for i, u := range got {
			if u.Err != nil {
				return stored, fmt.Errorf("point %s: %w", batch[i].ID, u.Err)
			}
			stored++
		}
	}
}
