import Bucketing
import Foundation
import Testing

/// Two server processes on one database file.
@Suite struct SharedDatabaseTests {
    private let directory: TemporaryDirectory
    private let servers: [ServerProcess]

    init() throws {
        directory = try TemporaryDirectory()
        let database = directory.file("holdfast.db")
        servers = [try ServerProcess(database: database), try ServerProcess(database: database)]
    }

    @Test func `What one saves the other answers at once`() throws {
        let clients = [try servers[0].client(), try servers[1].client()]
        for round in 0..<400 {
            let (writer, reader) = (clients[round % 2], clients[(round + 1) % 2])
            let text = profile("ada", ["11": "v\(round)"])
            #expect(try writer.request("POST", "/ups/save", text).text == text)
            // Twice, as the second answer comes from the reader's cache; then the next round makes that stale.
            #expect(try reader.request("GET", "/v1/profiles/ada").text == text)
            #expect(try reader.request("POST", "/ups/lookup", #"{"user_id":"ada"}"#).text == text)
        }
    }

    @Test func `What one erases or overrides the other answers at once`() throws {
        let (one, other) = (try servers[0].client(), try servers[1].client())
        for round in 0..<50 {
            _ = try one.request("POST", "/ups/save", profile("ada", ["11": "1"]))
            #expect(try other.request("GET", "/v1/profiles/ada").status == 200)
            _ = try one.request("PUT", "/v1/profiles/ada/experiments/11", #"{"variation_id":"o\#(round)"}"#)
            #expect(try other.request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "o\(round)"]))
            #expect(try other.request("POST", "/ups/save", profile("ada", ["11": "2"])).text
                == profile("ada", ["11": "o\(round)"]))
            #expect(try one.request("DELETE", "/v1/profiles/ada").status == 204)
            #expect(try other.request("GET", "/v1/profiles/ada").status == 404)
        }
    }

    @Test func `Concurrent saves of different experiments of one user by both are all kept`() throws {
        let count = 50
        let (servers, done) = (servers, DispatchGroup())
        for worker in 0..<4 {
            done.enter()
            Thread.detachNewThread {
                defer { done.leave() }
                do {
                    let client = try servers[worker % 2].client()
                    for number in 0..<count {
                        let body = profile("ada", ["w\(worker)n\(number)": "v\(number)"])
                        #expect(try client.request("POST", "/ups/save", body).status == 200)
                    }
                } catch {
                    Issue.record(error)
                }
            }
        }
        done.wait()
        for server in servers {
            let map = try server.request("GET", "/v1/profiles/ada")["experiment_bucket_map"]
            #expect(map.object?.count == 4 * count)
            for worker in 0..<4 {
                for number in 0..<count {
                    #expect(map["w\(worker)n\(number)"]["variation_id"] == .string("v\(number)"))
                }
            }
        }
    }

    @Test func `One goes on when the other is killed`() throws {
        #expect(try servers[0].request("POST", "/ups/save", profile("ada", ["11": "1"])).status == 200)
        servers[0].kill()
        #expect(try servers[1].request("GET", "/v1/profiles/ada").text == profile("ada", ["11": "1"]))
        #expect(try servers[1].request("POST", "/ups/save", profile("ada", ["11": "2"])).status == 200)
        #expect(try servers[1].request("GET", "/readyz").status == 200)
    }
}
