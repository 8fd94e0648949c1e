// Takes an instance through its life with types that openapi-typescript made from croft's document. It is called with
// the URL of a cloud and a token of a project.
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const [baseUrl, token] = process.argv.slice(2);
const cloud = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

function check(what: string, holds: boolean, got: unknown): void {
  if (!holds) throw new Error(`${what}: ${JSON.stringify(got)}`);
}

const image = "https://images.example/tiny.qcow2";
const path = { id: "typed" };
const made = await cloud.POST("/v1/instances", {
  params: { query: { wait: "running" } },
  body: { name: "typed", query: "VCPU:1,MEMORY_MB:256,DISK_GB:1", image },
});
check("create", made.data?.name === "typed" && made.data.state === "running", made);

const refused = await cloud.POST("/v1/instances", { body: { query: "VCPUS:1", image } });
check("a request with a wrong query", refused.error?.code === "bad_request", refused);

const listed = await cloud.GET("/v1/instances", {});
check("list", listed.data?.instances.length === 1 && listed.data.instances[0].id === made.data?.id, listed);

const stopped = await cloud.POST("/v1/instances/{id}/stop", { params: { path, query: { wait: "stopped" } } });
check("stop", stopped.data?.state === "stopped", stopped);

const destroyed = await cloud.DELETE("/v1/instances/{id}", { params: { path, query: { wait: "gone" } } });
check("destroy", destroyed.error === undefined, destroyed);

const after = await cloud.GET("/v1/instances/{id}", { params: { path } });
check("get after destroy", after.error?.code === "not_found", after);
