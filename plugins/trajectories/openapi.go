package trajectories

import (
	_ "embed"
	"net/http"
	"strconv"
)

// openAPIDocument describes every route for clients and for people. A test holds it against the handlers.
//
//go:embed openapi.json
var openAPIDocument []byte

func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(openAPIDocument)))
	_, _ = w.Write(openAPIDocument)
	return nil
}
