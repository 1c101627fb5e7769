// Runs the samples with the code of Tekton Triggers and Argo Events: reads events, and prints what each hands on.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	aev1 "github.com/argoproj/argo-events/pkg/apis/events/v1alpha1"
	argotriggers "github.com/argoproj/argo-events/pkg/sensors/triggers"
	"github.com/tektoncd/triggers/pkg/apis/triggers/v1beta1"
	"github.com/tektoncd/triggers/pkg/interceptors/cel"
	"github.com/tektoncd/triggers/pkg/template"
	"google.golang.org/grpc/codes"
	"sigs.k8s.io/yaml"
)

type secrets struct{}

func (secrets) Get(_ context.Context, _ string, sr *v1beta1.SecretRef) ([]byte, error) {
	if sr.SecretName != "registry-events" || sr.SecretKey != "token" {
		return nil, fmt.Errorf("no such secret: %v", sr)
	}
	return []byte("s3cret"), nil
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func documents(path string) [][]byte {
	text, err := os.ReadFile(path)
	must(err)
	return bytes.Split(text, []byte("\n---\n"))
}

func tekton(path string, body []byte, token string) string {
	var listener v1beta1.EventListener
	var binding v1beta1.TriggerBinding
	var tt v1beta1.TriggerTemplate
	for _, one := range documents(path) {
		switch {
		case bytes.Contains(one, []byte("kind: EventListener")):
			must(yaml.Unmarshal(one, &listener))
		case bytes.Contains(one, []byte("kind: TriggerBinding")):
			must(yaml.Unmarshal(one, &binding))
		case bytes.Contains(one, []byte("kind: TriggerTemplate")):
			must(yaml.Unmarshal(one, &tt))
		}
	}
	params := map[string]interface{}{}
	for _, one := range listener.Spec.Triggers[0].Interceptors[0].Params {
		var value interface{}
		must(json.Unmarshal(one.Value.Raw, &value))
		params[one.Name] = value
	}
	interceptor := cel.InterceptorImpl{SecretGetter: secrets{}}
	header := http.Header{"Authorization": []string{token}, "Content-Type": []string{"application/json"}}
	answer := interceptor.Process(context.Background(), &v1beta1.InterceptorRequest{
		Body: string(body), Header: header, InterceptorParams: params,
		Context: &v1beta1.TriggerContext{EventID: "1", EventURL: "http://x", TriggerID: "namespaces/ci/triggers/push"},
	})
	if !answer.Continue {
		if answer.Status.Code == codes.OK || answer.Status.Code == codes.FailedPrecondition {
			return "refused"
		}
		return "error: " + answer.Status.Message
	}
	resolved := template.ResolvedTrigger{TriggerTemplate: &tt, BindingParams: binding.Spec.Params}
	values, err := template.ResolveParams(resolved, body, header, answer.Extensions, template.NewTriggerContext("1"))
	must(err)
	var run struct {
		Spec struct {
			Params []struct{ Name, Value string }
		}
	}
	must(json.Unmarshal(template.ResolveResources(&tt, values)[0], &run))
	text, err := base64.StdEncoding.DecodeString(run.Spec.Params[0].Value)
	must(err)
	return string(text)
}

func argo(path string, body []byte) string {
	var sensor aev1.Sensor
	for _, one := range documents(path) {
		if bytes.Contains(one, []byte("kind: Sensor")) {
			must(yaml.Unmarshal(one, &sensor))
		}
	}
	data, err := json.Marshal(map[string]interface{}{"header": map[string][]string{}, "body": json.RawMessage(body)})
	must(err)
	trigger := sensor.Spec.Triggers[0].Template.ArgoWorkflow
	events := map[string]*aev1.Event{"push": {Context: &aev1.EventContext{DataContentType: "application/json"}, Data: data}}
	made, err := argotriggers.ApplyParams(trigger.Source.Resource.Value, trigger.Parameters, events)
	must(err)
	var workflow struct {
		Spec struct {
			Arguments struct {
				Artifacts []struct{ Raw struct{ Data string } }
			}
		}
	}
	must(json.Unmarshal(made, &workflow))
	return workflow.Spec.Arguments.Artifacts[0].Raw.Data
}

func main() {
	var bodies []json.RawMessage
	must(json.NewDecoder(os.Stdin).Decode(&bodies))
	made := []map[string]string{}
	for _, body := range bodies {
		made = append(made, map[string]string{
			"tekton": tekton(os.Args[1], body, "s3cret"),
			"forged": tekton(os.Args[1], body, "guess"),
			"argo":   argo(os.Args[2], body),
		})
	}
	out, err := json.Marshal(made)
	must(err)
	fmt.Println(strings.TrimSpace(string(out)))
}
