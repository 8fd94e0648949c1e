package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/cluster"
	"croft/compute"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/federation"
	"croft/hosts"
	"croft/hosts/audit"
	pools "croft/pool/api"
	"croft/schedule"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/tenant/usage"
)

// TestTheJSONIsMadeFromTheYAML keeps both files of the document equal.
func TestTheJSONIsMadeFromTheYAML(t *testing.T) {
	text, err := os.ReadFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(api.Document(), want) {
		t.Error("openapi.json is not made from openapi.yaml: run this test with -update")
	}
}

func TestTheDocumentIsOpenAPI(t *testing.T) {
	document, err := openapi3.NewLoader().LoadFromData(api.Document())
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestTypesHaveTheFieldsOfTheDocument keeps the contract and the types that servers and clients share equal.
func TestTypesHaveTheFieldsOfTheDocument(t *testing.T) {
	schemas := api.Tree()["components"].(map[string]any)["schemas"].(map[string]any)
	// These have fields that the document leaves out.
	open := map[string]bool{"Host": true, "Cluster": true, "Credential": true}
	left := maps.Clone(schemas)
	for name, v := range map[string]any{
		"Problem": api.Problem{}, "Cloud": api.Cloud{}, "Login": api.Login{}, "Caller": access.Caller{},
		"InstanceRequest": api.InstanceRequest{}, "Affinity": croft.Affinity{}, "Instance": api.Instance{},
		"InstanceList": api.InstanceList{}, "Change": api.Change{}, "Explanation": schedule.Explanation{},
		"NewKey": api.NewKey{}, "Key": schedule.Key{}, "KeyList": api.KeyList{}, "Host": api.Host{},
		"Aggregate": croft.Aggregate{}, "AggregateList": api.AggregateList{}, "NewAggregate": api.NewAggregate{},
		"AggregateChange": api.AggregateChange{}, "DistanceList": api.DistanceList{},
		"Distances": croft.Distances{}, "Distance": croft.Distance{},
		"Between": croft.Between{}, "NewDistance": api.NewDistance{},
		"Policy": croft.CrushPolicy{}, "PolicyList": api.PolicyList{}, "PolicyText": api.PolicyText{},
		"PolicyCheck": api.PolicyCheck{}, "PolicyHints": api.PolicyHints{}, "Step": schedule.Step{},
		"Standing": schedule.Standing{}, "CrushMap": cloud.CrushMap{},
		"HostList": api.HostList{}, "Project": tenant.Tenant{}, "ProjectList": api.ProjectList{},
		"NewProject": api.NewProject{}, "ProjectChange": api.ProjectChange{}, "Members": api.Members{},
		"OwnLimits": api.Limits{}, "Expiry": api.Expiry{},
		"ClaimRequest": api.ClaimRequest{}, "ClaimUse": api.ClaimUse{},
		"Defaults": tenant.Defaults{}, "Account": tenant.Account{},
		"UsageReport": usage.Report{}, "ProjectUsage": usage.Account{}, "UsageDay": usage.Day{},
		"Partition": federation.Partition{}, "PartitionList": api.PartitionList{}, "RowList": api.RowList{},
		"Peer": federation.Peer{}, "Card": federation.Card{}, "NewPeer": federation.NewPeer{},
		"Signer": federation.Signer{}, "SignerList": api.SignerList{},
		"Mapping": federation.Mapping{}, "NewMapping": api.NewMapping{}, "MappingList": api.MappingList{},
		"NewToken": api.NewToken{}, "TokenList": api.TokenList{}, "Token": cloud.AccessToken{},
		"Object": objects.Object{}, "ObjectList": api.ObjectList{}, "ObjectChange": api.ObjectChange{},
		"PropertyValue": api.PropertyValue{}, "NewDefinition": api.NewDefinition{}, "Definition": objects.Definition{},
		"Property": objects.Property{}, "Permission": objects.Permission{}, "Breach": objects.Breach{},
		"BreachList": api.BreachList{}, "Catalog": cloud.Catalog{}, "Image": cloud.Image{}, "NewImage": api.NewImage{},
		"Pool": pools.Pool{}, "PoolList": api.PoolList{}, "PoolTag": pools.Tag{}, "PoolStats": pools.Stats{},
		"PoolResource": pools.Resource{}, "PoolResourceList": api.PoolResourceList{}, "NewTicket": api.NewTicket{},
		"Ticket": pools.Ticket{}, "TicketList": api.TicketList{},
		"ResourceTypeList": api.ResourceTypeList{}, "ResourceType": api.ResourceType{},
		"CapabilityList": api.CapabilityList{}, "Capability": api.Capability{}, "InventoryList": api.InventoryList{},
		"Inventory": api.Inventory{}, "UserList": api.UserList{}, "User": tenant.User{}, "UserRole": tenant.UserRole{},
		"HeldList": api.HeldList{}, "Held": compute.Held{},
		"MoveList": api.MoveList{}, "LostInstance": hosts.LostInstance{}, "Move": api.Move{},
		"GuestUsageList": api.GuestUsageList{},
		"GuestUsage":     compute.Usage{}, "AuditReport": audit.Report{}, "Difference": audit.Difference{},
		"Unchecked": audit.Unchecked{}, "NewInvitation": api.NewInvitation{}, "Invitation": api.Invitation{},
		"InvitationList": api.InvitationList{}, "DiscrepancyList": api.DiscrepancyList{},
		"Discrepancy": tenant.Discrepancy{},
		"NewSite":     api.NewSite{}, "SiteChange": api.SiteChange{}, "Site": api.Site{},
		"SiteStanding": cluster.Health{}, "SiteList": api.SiteList{}, "SiteHealth": cluster.SiteHealth{},
		"NewCredential": api.NewCredential{}, "CredentialChange": api.CredentialChange{},
		"Credential": api.Credential{}, "CredentialList": api.CredentialList{}, "Rewrapped": api.Rewrapped{},
		"ApplianceAgent": cluster.Agent{}, "NewAppliance": api.NewAppliance{},
		"ApplianceChange": api.ApplianceChange{}, "Appliance": cluster.Appliance{},
		"ApplianceList": api.ApplianceList{}, "NewImplementation": api.NewImplementation{},
		"ImplementationChange": api.ImplementationChange{}, "Implementation": cluster.Implementation{},
		"ImplementationList": api.ImplementationList{}, "ClusterHints": cluster.Hints{},
		"ClusterRequest": api.ClusterRequest{}, "ClusterChange": api.ClusterChange{}, "Cluster": api.Cluster{},
		"ClusterSizing": cluster.Sizing{}, "ClusterFailure": cluster.Failure{}, "ClusterHost": cluster.Member{},
		"ClusterRemote": cluster.Remote{}, "ClusterAttempt": cluster.Tried{}, "ClusterRetry": cluster.Retry{},
		"ClusterUse": cluster.Use{}, "ClusterList": api.ClusterList{}, "ClusterEvent": cluster.Event{},
		"ClusterEventList": api.ClusterEventList{}, "ClusterAccount": api.ClusterAccount{},
		"ClusterOutput":      api.ClusterOutput{},
		"ClusterExplanation": cluster.Explanation{}, "SiteChoice": cluster.Choice{},
		"SiteDropped": cluster.Dropped{}, "NewSiteImage": api.NewSiteImage{}, "SiteImage": cluster.SiteImage{},
		"PlacedImage": cluster.Placed{}, "ImageAtSite": api.ImageAtSite{},
		"ActionList": actions.Page{}, "Action": actions.Entry{}, "ActionObject": actions.Object{},
	} {
		schema := schemas[name].(map[string]any)
		var want []string
		for field := range maps.Keys(schema["properties"].(map[string]any)) {
			want = append(want, field)
		}
		got := fields(reflect.TypeOf(v))
		for _, field := range want {
			if !slices.Contains(got, field) {
				t.Errorf("%s: the document has %s, which the type %T lacks", name, field, v)
			}
		}
		for _, field := range got {
			if !open[name] && !slices.Contains(want, field) {
				t.Errorf("%s: the type %T has %s, which the document lacks", name, v, field)
			}
		}
		delete(left, name)
	}
	for name := range left {
		t.Errorf("no type is compared with the schema %s", name)
	}
}

// fields lists the names of a struct's fields in JSON, with those of embedded structs.
func fields(s reflect.Type) []string {
	if s.Kind() == reflect.Pointer {
		s = s.Elem()
	}
	var all []string
	for i := range s.NumField() {
		f := s.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			all = append(all, fields(f.Type)...)
		default:
			all = append(all, name)
		}
	}
	return all
}

func TestEveryOperationSaysWhatItIs(t *testing.T) {
	ids := map[string]bool{}
	for _, o := range api.Operations() {
		if o.ID == "" || o.Summary == "" || o.Tag == "" || ids[o.ID] {
			t.Errorf("%s %s: operationId %q, tag %q, summary %q: each is needed, and the first once", o.Method, o.Path,
				o.ID, o.Tag, o.Summary)
		}
		ids[o.ID] = true
		for _, p := range o.Parameters {
			if p.Name == "" || p.Schema == nil {
				t.Errorf("%s has a parameter %+v", o.ID, p)
			}
		}
	}
	if len(ids) < 20 {
		t.Errorf("the document has %d operations", len(ids))
	}
}

func TestCodesAreThoseOfTheDocument(t *testing.T) {
	schemas := api.Tree()["components"].(map[string]any)["schemas"].(map[string]any)
	text, err := json.Marshal(schemas["Problem"])
	if err != nil {
		t.Fatal(err)
	}
	var problem struct {
		Properties struct{ Code struct{ Enum []string } }
	}
	if err := json.Unmarshal(text, &problem); err != nil {
		t.Fatal(err)
	}
	got, want := api.Code("").Words(), slices.Sorted(slices.Values(problem.Properties.Code.Enum))
	if !slices.Equal(got, want) {
		t.Errorf("the codes are %q, and in the document %q", got, want)
	}
}

// TestAProblemKeepsItsKind: a refusal of the server has the same Kind at a client.
func TestAProblemKeepsItsKind(t *testing.T) {
	for code, want := range map[api.Code]croft.Kind{
		api.BadQuery: croft.Invalid, api.Unauthenticated: croft.Denied, api.QuotaExceeded: croft.OverQuota,
		api.NotFound: croft.NotFound, api.NameTaken: croft.Conflict, api.NoCapacity: croft.NoCapacity,
		api.Busy: croft.Unavailable, api.Internal: "",
	} {
		err := fmt.Errorf("ask: %w", api.NewProblem(code, "because"))
		if got := croft.KindOf(err); got != want || err.Error() != "ask: because" {
			t.Errorf("%s is %q, %v, want %q", code, got, err, want)
		}
	}
}
