import APITestSupport
import JSON
import Testing

@testable import HoldfastAPI

/// `/v1/projects`: only the first project is made by itself.
@Suite struct ProjectTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func ask(_ method: String, _ target: String, _ body: String? = nil, key: String? = nil) throws
        -> TestResponse
    {
        try server.request(method, target, body, fields: key.map { ["X-Optimizely-SDK-Key: \($0)"] } ?? [])
    }

    private func projects(_ query: String = "") throws -> [String] {
        try server.request("GET", "/v1/projects\(query)")["projects"].array?.map {
            ($0["sdk_key"].string ?? "") + ($0["default"] == true ? "*" : "")
        } ?? []
    }

    private static let experiment = #"{"variations":["a","b"]}"#
    private static let flag = #"{"type":"boolean","variations":[{"key":"on","value":true}],"otherwise":"on"}"#

    @Test func `A mistyped SDK key makes no project, and names the one that was meant`() throws {
        #expect(try projects().isEmpty)
        #expect(try ask("PUT", "/v1/experiments/checkout", Self.experiment, key: "prod").status == 201)
        let detail: JSONValue =
            "no project has the SDK key 'prodd'; did you mean 'prod'? PUT /v1/projects/prodd makes it"
        let datafile = try ask("GET", "/datafiles/prod.json").text
        for (method, target, body) in [
            ("PUT", "/v1/experiments/checkout", Self.experiment), ("PUT", "/v1/flags/banner", Self.flag),
            ("POST", "/v1/experiments/checkout/preview", Self.experiment), ("DELETE", "/v1/experiments/checkout", nil),
            ("PUT", "/v1/datafile", datafile),
        ] {
            let refused = try ask(method, target, body, key: "prodd")
            #expect(refused.status == 404, "\(method) \(target)")
            #expect(refused["detail"] == detail, "\(method) \(target)")
        }
        let other = datafile.replacing(#""sdkKey":"prod""#, with: #""sdkKey":"prodd""#)
        #expect(try ask("PUT", "/v1/datafile", other)["detail"] == detail)
        #expect(try ask("PUT", "/v1/datafile", other, key: "prod").status == 200)
        #expect(try projects() == ["prod*"])
        // Clients that name no project go on.
        #expect(try ask("GET", "/v1/assign?user_id=ann&experiment=checkout").status == 200)
        server.stop()
    }

    @Test func `Requests that name no project mean the default one, which can be changed`() throws {
        #expect(try ask("PUT", "/v1/experiments/checkout", Self.experiment).status == 201)
        let made = try ask("PUT", "/v1/projects/app", #"{"name":"The app"}"#)
        #expect(made.status == 201)
        #expect(made["name"] == "The app" && made["default"] == false && made["revision"] == "0")
        #expect(made["experiments"] == 0 && made["flags"] == 0)
        #expect(try ask("GET", "/datafiles/app.json")["revision"] == "0")
        #expect(try ask("PUT", "/v1/experiments/menu", Self.experiment, key: "app").status == 201)
        #expect(try ask("GET", "/v1/experiments/menu").status == 404)
        #expect(try ask("PUT", "/v1/projects/app", #"{"default":true}"#).status == 200)
        #expect(try projects() == ["app*", "default"])
        #expect(try ask("GET", "/v1/experiments/menu").status == 200)
        #expect(try ask("GET", "/v1/experiments/checkout").status == 404)
        #expect(try ask("GET", "/v1/experiments/checkout", key: "default").status == 200)
        let refused = try ask("PUT", "/v1/projects/app", #"{"default":false}"#)
        #expect(refused.status == 409 && refused["pointer"] == "/default")
        server.stop()
    }

    @Test func `What GET returns is accepted by PUT and changes nothing`() throws {
        #expect(try ask("PUT", "/v1/projects/shop", #"{"name":"Shop"}"#).status == 201)
        let stored = try ask("GET", "/v1/projects/shop")
        let again = try ask("PUT", "/v1/projects/shop", stored.text)
        #expect(again.status == 200 && again.text == stored.text)
        #expect(try ask("PUT", "/v1/projects/shop").text == stored.text)
        #expect(try ask("GET", "/v1/audit?action=project.put")["entries"].array?.count == 1)
        server.stop()
    }

    @Test(arguments: [
        ("shop", #"{"name":1}"#, "/name"), ("shop", #"{"default":1}"#, "/default"),
        ("shop", #"{"sdk_key":"other"}"#, "/sdk_key"), ("shop", #"{"naem":"x"}"#, "/naem"), ("sh%20op", "{}", nil),
    ])
    func `A wrong definition makes no project`(key: String, body: String, pointer: String?) throws {
        let refused = try ask("PUT", "/v1/projects/\(key)", body)
        #expect(refused.status == 400, "\(refused.text)")
        #expect(refused["pointer"].string == pointer)
        #expect(try projects().isEmpty)
        server.stop()
    }

    @Test func `Only an empty project is deleted`() throws {
        #expect(try ask("PUT", "/v1/projects/shop").status == 201)
        #expect(try ask("PUT", "/v1/projects/app").status == 201)
        #expect(try ask("PUT", "/v1/experiments/menu", Self.experiment, key: "app").status == 201)
        let refused = try ask("DELETE", "/v1/projects/app")
        #expect(refused.status == 409)
        #expect(refused["contents"] == ["experiments": 1, "flags": 1])
        #expect(try ask("DELETE", "/v1/projects/shop").status == 409)
        let empty = try ask("GET", "/datafiles/shop.json").text.replacing(#""shop""#, with: #""app""#)
        #expect(try ask("PUT", "/v1/datafile", empty, key: "app").status == 200)
        #expect(try ask("DELETE", "/v1/projects/app").status == 204)
        #expect(try ask("DELETE", "/v1/projects/app").status == 404)
        #expect(try ask("GET", "/v1/projects/app").status == 404)
        #expect(try ask("GET", "/datafiles/app.json").status == 404)
        #expect(try projects() == ["shop*"])
        // What was decided before the deletion, and what is decided after it, is stored.
        #expect(try ask("PUT", "/v1/experiments/menu", Self.experiment).status == 201)
        let assigned = try ask("POST", "/v1/assign", #"{"user_id":"ann","experiment":"menu"}"#)
        #expect(assigned["variation_key"].string != nil, "\(assigned.text)")
        #expect(try ask("PUT", "/v1/projects/app").status == 201)
        #expect(try ask("PUT", "/v1/experiments/menu", Self.experiment, key: "app").status == 201)
        server.stop()
    }

    @Test func `The last project can be deleted, and the next definition makes the first one again`() throws {
        #expect(try ask("PUT", "/v1/projects/shop").status == 201)
        #expect(try ask("DELETE", "/v1/projects/shop").status == 204)
        #expect(try ask("PUT", "/v1/flags/banner", Self.flag).status == 201)
        #expect(try projects() == ["default*"])
        server.stop()
    }
}

/// The pages of lists of definitions.
@Suite struct ListTests {
    private let server: any TestServer

    init() throws {
        server = try startTestServer()
    }

    private func keys(_ target: String, _ list: String, _ member: String = "key") throws -> [String?] {
        try server.request("GET", target)[list].array?.map { $0[member].string } ?? []
    }

    @Test func `A list is read in pages, in the order of the keys`() throws {
        for key in ["menu", "Cart", "banner", "checkout"] {
            #expect(try server.request("PUT", "/v1/experiments/\(key)", #"{"variations":["a"]}"#).status == 201)
        }
        for (list, path) in [("experiments", "/v1/experiments"), ("flags", "/v1/flags")] {
            #expect(try keys(path, list) == ["Cart", "banner", "checkout", "menu"])
            let first = try server.request("GET", "\(path)?limit=3")
            #expect(first["next"] == "checkout")
            #expect(try keys("\(path)?limit=3&after=checkout", list) == ["menu"])
            #expect(try server.request("GET", "\(path)?limit=3&after=checkout")["next"].isNull)
            #expect(try server.request("GET", "\(path)?limit=4")["next"].isNull)
            // The end of the former page need not exist any more.
            #expect(try keys("\(path)?after=c", list) == ["checkout", "menu"])
            #expect(try keys("\(path)?q=C", list) == ["Cart", "checkout"])
            #expect(try keys("\(path)?q=c&after=Cart", list) == ["checkout"])
            #expect(try server.request("GET", "\(path)?limit=0").status == 400)
            #expect(try server.request("GET", "\(path)?limit=1001").status == 400)
            #expect(try server.request("GET", "\(path)?sort=key").status == 400)
            let tag = try #require(first.field("etag"))
            #expect(
                try server.request("GET", "\(path)?limit=3", fields: ["If-None-Match: \(tag)"]).status == 304)
        }
        server.stop()
    }

    @Test func `A page has 100 elements by default, but lists of attributes and segments are whole`() throws {
        for index in 100...200 {
            #expect(try server.request("PUT", "/v1/attributes/a\(index)", #"{"type":"number"}"#).status == 201)
            #expect(try server.request("PUT", "/v1/projects/p\(index)").status == 201)
        }
        #expect(try keys("/v1/projects", "projects", "sdk_key").count == 100)
        #expect(try keys("/v1/projects?after=p199", "projects", "sdk_key") == ["p200"])
        #expect(try keys("/v1/attributes", "attributes", "name").count == 101)
        #expect(try keys("/v1/attributes?limit=2", "attributes", "name") == ["a100", "a101"])
        #expect(try keys("/v1/attributes?q=0", "attributes", "name").count == 20)
        server.stop()
    }

    @Test func `A flag is found by its description and tags`() throws {
        let definition =
            #"{"type":"boolean","variations":[{"key":"on","value":true}],"otherwise":"on","description":"Größer","tags":["web"]}"#
        #expect(try server.request("PUT", "/v1/flags/banner", definition).status == 201)
        #expect(try keys("/v1/flags?q=gr%C3%96ss", "flags") == [])
        #expect(try keys("/v1/flags?q=GR%C3%96%C3%9F", "flags") == ["banner"])
        #expect(try keys("/v1/flags?q=WEB", "flags") == ["banner"])
        #expect(try keys("/v1/flags?q=app", "flags") == [])
        server.stop()
    }
}
