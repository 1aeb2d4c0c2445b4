"""A Kubernetes API with KubeRay in it, on the loopback: holds objects, checks RayJobs, makes their pods.

It knows what a launch uses, and answers 404 to all else. A RayJob is checked against the closed shape of
what we emit; its cluster and pods appear as ``Behaviour`` says, carry the RayJob's labels as the operator's
do, and go with it. Port-forwarding speaks the v4 channel protocol over a web socket, to a local port.
"""

import asyncio
import base64
import copy
import json
import threading
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientConnectorError, WSMsgType, web

from clusters.config import closed

Document = dict[str, Any]
RAY = "/apis/ray.io/v1/namespaces/{namespace}/"
CORE = "/api/v1/namespaces/{namespace}/"
TOKEN = "the-token-of-ray"


@dataclass
class Behaviour:
    """How the cluster behaves."""

    workers_ready: int | None = None  # None: all of them
    waiting: str = ""  # reason of the containers that do not start
    unschedulable: str = ""
    fail_message: str = ""
    refuse: dict[str, tuple[int, str]] = field(default_factory=dict)  # "POST rayjobs" -> status, message
    lacking: tuple[str, ...] = ()  # "create rayjobs"
    stuck_pods: bool = False
    forward_to: int = 0
    without_token: bool = False


class FakeKube:
    """The API; ``calls`` are all that were made, as ``POST rayjobs``."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.calls: list[str] = []
        self.kept: dict[str, dict[str, Document]] = {
            "rayjobs": {}, "rayclusters": {}, "pods": {}, "secrets": {}, "nodes": {}, "resourcequotas": {}
        }  # fmt: skip
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "FakeKube":
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def kubeconfig(self) -> str:
        """Text of a kubeconfig for it."""
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "lab",
                "clusters": [{"name": "lab", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
                "users": [{"name": "ada", "user": {"token": "t"}}],
                "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ada"}}],
            }
        )

    def add_node(self, name: str, gpus: int) -> None:
        self.kept["nodes"][name] = {
            "metadata": {"name": name, "labels": {"nvidia.com/cuda.driver.major": "580"}},
            "spec": {},
            "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}},
        }

    def add_quota(self, hard: int, used: int) -> None:
        name = "requests.nvidia.com/gpu"
        self.kept["resourcequotas"]["team"] = {
            "metadata": {"name": "team"},
            "status": {"hard": {name: str(hard)}, "used": {name: str(used)}},
        }

    # ------------------------------------------------------------------------------------ server

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        for plural in ("rayjobs", "rayclusters"):
            app.router.add_get(RAY + plural, self._list(plural))
            app.router.add_post(RAY + plural, self._create)
            app.router.add_get(RAY + plural + "/{name}", self._get(plural))
            app.router.add_patch(RAY + plural + "/{name}", self._patch)
            app.router.add_delete(RAY + plural + "/{name}", self._delete(plural))
        app.router.add_get(CORE + "pods", self._list("pods"))
        app.router.add_delete(CORE + "pods/{name}", self._delete("pods"))
        app.router.add_get(CORE + "pods/{name}/portforward", self._forward)
        app.router.add_get(CORE + "secrets/{name}", self._get("secrets"))
        app.router.add_get(CORE + "resourcequotas", self._list("resourcequotas"))
        app.router.add_get("/api/v1/nodes", self._list("nodes"))
        app.router.add_post("/apis/authentication.k8s.io/v1/selfsubjectreviews", self._whoami)
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._may)
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.port = runner.addresses[0][1]
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def _refused(self, verb: str, plural: str) -> web.Response | None:
        self.calls.append(f"{verb} {plural}")
        refusal = self.behaviour.refuse.get(f"{verb} {plural}")
        return None if refusal is None else _status(*refusal)

    def _list(self, plural: str) -> Any:
        async def handler(request: web.Request) -> web.Response:
            refusal = self._refused("GET", plural)
            wanted = request.query.get("labelSelector", "")
            found = [copy.deepcopy(o) for o in self.kept[plural].values() if _selected(o, wanted)]
            return refusal or web.json_response({"kind": "List", "metadata": {}, "items": found})

        return handler

    def _get(self, plural: str) -> Any:
        async def handler(request: web.Request) -> web.Response:
            found = self.kept[plural].get(request.match_info["name"])
            refusal = self._refused("GET", plural)
            return refusal or (_status(404, "not found") if found is None else web.json_response(found))

        return handler

    async def _create(self, request: web.Request) -> web.Response:
        refusal = self._refused("POST", "rayjobs")
        if refusal is not None:
            return refusal
        body = await request.json()
        name = body["metadata"]["name"]
        if name in self.kept["rayjobs"]:
            return _status(409, "already exists")
        named = closed.shapes("shapes.json")
        wrong = closed.problems(body, named["RayJob"], "RayJob", named)
        if wrong or body["metadata"]["namespace"] != request.match_info["namespace"]:
            return _status(422, "; ".join(wrong) or "namespace")
        body["metadata"]["creationTimestamp"] = "2026-12-01T09:00:00Z"
        self.kept["rayjobs"][name] = body
        self._operate(name, body)
        return web.json_response(body, status=201)

    def _operate(self, name: str, job: Document) -> None:
        """What the operator does with a new RayJob."""
        told = self.behaviour
        job["status"] = {"jobDeploymentStatus": "Running", "startTime": "2026-12-01T09:00:10Z"}
        if told.fail_message:
            job["status"] = {"jobDeploymentStatus": "Failed", "message": told.fail_message}
            return
        cluster, labels = f"{name}-abcde", job["metadata"]["labels"]
        self.kept["rayclusters"][cluster] = {
            "metadata": {"name": cluster, "labels": dict(labels)},
            "status": {"state": "ready"},
        }
        secret = {} if told.without_token else {"auth_token": base64.b64encode(TOKEN.encode()).decode()}
        self.kept["secrets"][cluster] = {"metadata": {"name": cluster}, "data": secret}
        workers = job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"]
        ready = workers if told.workers_ready is None else told.workers_ready
        self._pod(f"{cluster}-head", cluster, labels, "head", is_ready=True)
        for i in range(workers):
            self._pod(f"{cluster}-gpus-{i}", cluster, labels, "worker", is_ready=i < ready)

    def _pod(self, name: str, cluster: str, labels: Document, kind: str, is_ready: bool) -> None:
        told = self.behaviour
        conditions = [{"type": "Ready", "status": str(is_ready)}]
        if not is_ready and told.unschedulable:
            conditions.append({"type": "PodScheduled", "status": "False", "message": told.unschedulable})
        state = {"running": {}} if is_ready else {"waiting": {"reason": told.waiting or "ContainerCreating"}}
        self.kept["pods"][name] = {
            "metadata": {
                "name": name,
                "labels": {**labels, "ray.io/node-type": kind, "ray.io/cluster": cluster},
            },
            "status": {
                "phase": "Running" if is_ready else "Pending",
                "conditions": conditions,
                "containerStatuses": [
                    {"name": "ray", "image": "i", "imageID": "i", "ready": is_ready, "restartCount": 0,
                     "state": state}
                ],
            },
        }  # fmt: skip

    async def _patch(self, request: web.Request) -> web.Response:
        refusal = self._refused("PATCH", "rayjobs")
        job = self.kept["rayjobs"].get(request.match_info["name"])
        if refusal or job is None:
            return refusal or _status(404, "not found")
        job["spec"].update((await request.json())["spec"])
        return web.json_response(job)

    def _delete(self, plural: str) -> Any:
        async def handler(request: web.Request) -> web.Response:
            refusal = self._refused("DELETE", plural)
            name = request.match_info["name"]
            if refusal or name not in self.kept[plural]:
                return refusal or _status(404, "not found")
            gone = self.kept[plural].pop(name)
            if plural != "pods":
                self._cascade(gone)
            return web.json_response({"kind": "Status", "status": "Success"})

        return handler

    def _cascade(self, owner: Document) -> None:
        """Whatever carries the owner's launch goes with it."""
        launch = owner["metadata"]["labels"]["plan-launch"]
        for plural in ("rayclusters", "pods"):
            for name, body in list(self.kept[plural].items()):
                mine = body["metadata"]["labels"]["plan-launch"] == launch
                if mine and not (plural == "pods" and self.behaviour.stuck_pods):
                    del self.kept[plural][name]

    async def _whoami(self, request: web.Request) -> web.Response:
        refusal = self._refused("POST", "selfsubjectreviews")
        return refusal or web.json_response({"status": {"userInfo": {"username": "ada"}}})

    async def _may(self, request: web.Request) -> web.Response:
        asked = (await request.json())["spec"]["resourceAttributes"]
        allowed = f"{asked['verb']} {asked['resource']}" not in self.behaviour.lacking
        return web.json_response({"spec": {}, "status": {"allowed": allowed}})

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        """Frames begin with their channel; the first of each channel names the port, little-endian."""
        self.calls.append("GET portforward")
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        port = int(request.query["ports"]).to_bytes(2, "little")
        for channel in (b"\x00", b"\x01"):
            await socket.send_bytes(channel + port)
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.behaviour.forward_to)
        except (OSError, ClientConnectorError):
            await socket.close()
            return socket
        back = asyncio.create_task(_pump(reader, socket))
        async for message in socket:
            if message.type == WSMsgType.BINARY and message.data[:1] == b"\x00":
                writer.write(message.data[1:])
                await writer.drain()
        back.cancel()
        writer.close()
        return socket


async def _pump(reader: asyncio.StreamReader, socket: web.WebSocketResponse) -> None:
    while data := await reader.read(65536):
        await socket.send_bytes(b"\x00" + data)
    await socket.close()


def _selected(body: Document, selector: str) -> bool:
    labels = body["metadata"].get("labels", {})
    key, _, value = selector.partition("=")
    return not selector or (labels.get(key) == value if value else key in labels)


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)
