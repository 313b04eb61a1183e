import XCTest

import Tidegate

/// What docs/swift.md shows.
final class PageTests: XCTestCase {
    func testBlocking() throws {
        let rules = [NamedRule(name: "login", limits: "5/m")]
        let limiter = try Limiter(source: .rules(rules: rules, url: nil))

        let alice = Key.whole(bytes: Data("alice".utf8))
        let decision = try limiter.check(rules: ["login"], key: alice, options: Options())
        XCTAssertTrue(decision.allowed)
        XCTAssertEqual(decision.remaining, 4)

        XCTAssertTrue(try limiter.refund(receipt: decision.receipt))
        XCTAssertEqual(try limiter.peek(rules: ["login"], key: alice, options: Options()).remaining, 5)
    }

    func testAwaited() async throws {
        let limiter = try Limiter(source: .rules(rules: [NamedRule(name: "login", limits: "5/m")], url: nil))
            .asynchronous()
        let key = Key.parts(parts: [Data("acme".utf8), Data("alice".utf8)])
        let decision = try await limiter.check(rules: ["login"], key: key, options: Options(cost: 2))
        XCTAssertEqual(decision.remaining, 3)
    }

    func testErrorsSayWhatToWrite() throws {
        let limiter = try Limiter(source: .rules(rules: [NamedRule(name: "login", limits: "5/m")], url: nil))
        XCTAssertThrowsError(
            try limiter.check(rules: ["logon"], key: .whole(bytes: Data("alice".utf8)), options: Options())
        ) { error in
            guard case TidegateError.UnknownRule(let message) = error else { return XCTFail("\(error)") }
            XCTAssertTrue(message.hasPrefix("unknown_rule: "), message)
        }
    }

    func testRequests() throws {
        let document = """
            version = 1
            [rules]
            login = "5/m"
            [[routes]]
            path = "/login"
            methods = ["POST"]
            rules = "login"
            key = "ip"
            """
        let policy = try Policy(source: .toml(text: document))
        let admission = try policy.admit(method: "POST", path: "/login", told: Told(peer: "203.0.113.7"))
        XCTAssertTrue(admission.allowed)
        try admission.charge.settle(status: 200)
    }
}
