import Bucketing
import Storage
import Testing

@Suite struct ExperimentBucketMapTests {
    @Test
    func `Entries are in the byte order of their ids, and the last of several counts`() {
        let map = ExperimentBucketMap(
            [("b", "1"), ("a", "2"), ("B", "3"), ("b", "4")].map {
                ExperimentBucketMap.Entry(experimentID: Identifier($0.0), variationID: Identifier($0.1))
            })
        #expect(map.entries.map(\.experimentID) == ["B", "a", "b"])
        #expect(map.entries.map(\.variationID) == ["3", "2", "4"])
    }

    @Test(
        arguments: [
            ["experiment10", "experiment1", "experiment2", "experiment"],
            ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaac", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaab", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaabb"],
            [
                "baaaaaaaaaaaaaaaaaaaaaaac", "aaaaaaaaaaaaaaaaaaaaaaac", "baaaaaaaaaaaaaaaaaaaaaaab",
                "aaaaaaaaaaaaaaaaaaaaaaab", "a", "",
            ],
            ["é", "e", "z", "\u{1F600}", "e\u{301}", "e\0", "e\0\0"],
        ])
    func `Long ids are in the order of their bytes, whatever they have in common`(ids: [Identifier]) {
        let map = ExperimentBucketMap(ids.map { .init(experimentID: $0, variationID: $0) })
        #expect(map.entries.map(\.experimentID) == ids.sorted())
        #expect(map.entries.map(\.variationID) == ids.sorted())
    }

    @Test
    func `Maps of the same variations are equal, however they are made`() {
        #expect(ExperimentBucketMap(["x": "1", "y": "2"]) == ["y": "2", "x": "1"])
        #expect(ExperimentBucketMap([]) == .empty)
    }
}
