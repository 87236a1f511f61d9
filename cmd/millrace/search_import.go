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

const (
	importBatch = 100
	importLine  = 8 << 20 // longest line of a JSONL file
)

// pointReader reads the points of a file one by one; io.EOF ends them.
type pointReader func() (millrace.Point, error)

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
			return millrace.Point{ID: strings.Trim(string(doc[idField]), `"`), Payload: json.RawMessage(append([]byte{}, lines.Bytes()...))}, nil
		}
		if err := lines.Err(); err != nil {
			return p, fmt.Errorf("line %d: %w", number+1, err)
		}
		return p, io.EOF
	}
}

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

// importPoints stores points in batches, and stops at the first that is refused.
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
