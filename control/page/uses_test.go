package page

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"croft/control"
)

// uses says, for each operation that has no form in the table of forms, which view of the page uses it: a method and a
// path below Root, then the operations.
const uses = `
GET /instances: whoami listInstances watchEvents listProjects
GET /instances/{id}: getInstance listActions listBackups listSnapshots getInstanceUsage getStanding
GET /instances/{id}/log: getInstanceLog
GET /instances/{id}/console: attachConsole
GET /instances/{id}/screen: attachScreen getScreen
POST /instances/new: createInstance
POST /instances/{id}/{action}: startInstance stopInstance rebootInstance resizeInstance moveInstance cancelMove
POST /instances/{id}/{action}: recreateInstance ejectInstance rebuildInstance destroyInstance changeInstance
POST /instances/{id}/{action}: createSnapshot rollBackSnapshot removeSnapshot createBackup
GET /volumes: listVolumes
GET /images: listCatalogImages getImageUpload
GET /instances/new: listImages listSizes listKeys explainRequest
GET /backups: listBackupSchedules listBackupStores listUnprotected
GET /pools: listPools listTickets
GET /clusters: listClusters
GET /clusters/{id}: getCluster listClusterEvents
GET /sites: listSites listAppliances listImplementations listCredentials
GET /claims: listClaims
GET /aggregates: listAggregates listDistances
GET /capabilities: listCapabilities
GET /definitions: getDefinition
GET /invitations: listInvitations
GET /peers: listPartitions listSigners
GET /policies: listPolicies getPolicy
POST /policies: checkPolicy setPolicy
GET /log: listActions
GET /hosts: listHosts
GET /hosts/{id}: getHost getInventory listHostImages listLeftovers
POST /hosts/{id}/{action}: drainHost enableHost emptyHost fenceHost takeHostBack forgetHost
POST /hosts/{id}/images: removeHostImages
POST /hosts/{id}/pull: pullImage
POST /hosts/{id}/leftovers/{instance}: removeLeftover
GET /audit: auditCloud
POST /audit: repairCloud
GET /dashboard: listUsage listStorages
GET /project: getProject getQuota getDefaultQuota getUsage listTokens listMappings
POST /project/new: createProject
POST /project/members: setMembers
POST /project/tokens: createToken
POST /project/keys: addKey
POST /project/quota: setQuota
POST /project/{what}/remove: removeKey revokeToken`

// reasons says why the page does not use an operation.
var reasons = map[string]string{
	"getDocument getRoot": "the page serves the reference of its own version, and clients compare versions",
	"createPageLink":      "croft page makes the link that opens the page",
	// until it asks while one types
	"keepInstance":    "changeInstance sets the expiry, too",
	"watchInstance":   "watchEvents has the changes of all instances",
	"forwardPort":     "a browser has no port to forward to: schedule port-forward",
	"listUsages":      "getInstanceUsage has what an instance uses",
	"discoverTargets": "Prometheus asks for it",
	"getClaim":        "the form for the use of a claim reads it by its name in the table",
	"getTicket": "the list has all of a ticket but its data, which the holder reads: croft pool " +
		"ticket show",
	"listPoolResources":       "the list of pools counts the resources: croft pool show lists them",
	"getResourceLog":          "it is for those who debug the commands of a pool: croft pool log",
	"uploadCatalogImage":      "images are larger than forms may be: croft image add NAME FILE uploads one in parts",
	"completeImageUpload":     "it ends an upload in parts",
	"getSnapshot":             "the list has all of it",
	"getBackupStore":          "the list has all of it",
	"getBackupSchedule":       "the list has all of it",
	"getImage":                "the list has all of it",
	"listObjects":             "the list of instances has their properties and tags; other kinds: croft object list",
	"getProperty setProperty": "the form for properties and tags sends changeObject",
	"removeProperty addTag":   "the form for properties and tags sends changeObject",
	"removeTag":               "the form for properties and tags sends changeObject",
	"getDistance":             "the list has the stated ones, and croft host distance derives others",
	"getCrushMap":             "it is for crushtool: croft policy map writes the file",
	"getHostCapabilities":     "the page of a host has them from getHost",
	"listResourceTypes":       "forms take any class, and the API says which it knows",
	"listUsers":               "members are in the pages of their projects",
	"checkQuotas":             "the audit of the cloud checks them, too; each project can be counted again",
	"listRows":                "they are for programs that compare clouds: croft partition rows",
	"exportPartition":         "an export is a file of any size: croft partition export writes it",
	"importPartition":         "an export is a file of any size: croft partition import reads it",
}

// TestEveryOperationHasItsPlaceInThePage fails for operations that are new, until a form or a view uses them, or a
// reason says why none does.
func TestEveryOperationHasItsPlaceInThePage(t *testing.T) {
	t.Parallel()
	source := ""
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") {
			source += string(text)
		}
	}
	called := map[string]bool{} // by a method of the client
	for _, found := range regexp.MustCompile(`\bclient\.([A-Z]\w+)\(`).FindAllStringSubmatch(source, -1) {
		called[strings.ToLower(found[1][:1])+found[1][1:]] = true
	}
	for name, method := range map[string]string{"watchEvents": "streamEvents", "getInstanceLog": "readLog",
		"getScreen": "readScreen", "getQuota": "quotaChain", "getDefaultQuota": "quotaChain"} {
		called[name] = called[name] || called[method]
	}
	viewed := map[string][]string{}
	for line := range strings.Lines(strings.TrimSpace(uses)) {
		at, names, _ := strings.Cut(line, ": ")
		method, path, _ := strings.Cut(at, " ")
		if !slices.ContainsFunc(views(), func(v view) bool { return v.at == method+" "+Root+path }) {
			t.Errorf("there is no view %s", at)
		}
		for name := range strings.FieldsSeq(names) {
			viewed[name] = append(viewed[name], at)
		}
	}
	reasoned := map[string]string{}
	for names, reason := range reasons {
		for name := range strings.FieldsSeq(names) {
			reasoned[name] = reason
		}
	}
	formed, read := map[string]bool{}, map[string]bool{}
	for _, f := range forms() {
		formed[f.Op], read[f.Now] = true, true
	}
	for _, o := range control.Operations() {
		reason := reasoned[o.ID]
		switch {
		case formed[o.ID]:
		case viewed[o.ID] != nil && !called[o.ID]:
			t.Errorf("%s: %q do not call it", o.ID, viewed[o.ID])
		case viewed[o.ID] == nil && reason == "" && !read[o.ID]:
			t.Errorf("%s has neither a form nor a view: add one, or say in reasons why the page needs none", o.ID)
		case reason != "" && called[o.ID]:
			t.Errorf("%s: the page uses it, and there is a reason why not: %s", o.ID, reason)
		}
		delete(viewed, o.ID)
		delete(reasoned, o.ID)
	}
	for name := range viewed {
		t.Errorf("uses has %s, which is no operation", name)
	}
	for name := range reasoned {
		t.Errorf("reasons has %s, which is no operation", name)
	}
}
