# frozen_string_literal: true

module Tidegate
  # A request by its route, and what the route needs to be told of it. Policy#request makes it.
  class Request
    # In capital letters.
    attr_reader :method
    # As on the wire, without the query; empty if the route was named.
    attr_reader :path
    # @api private
    attr_reader :named

    # @api private
    def initialize(method, path, named, needs)
      @method = method
      @path = path
      @named = named
      @needs = needs
      freeze
    end

    # The name of its route; nil if it has none.
    def route
      @needs.route
    end

    # Whether its rules need the user: only then the session has to be looked at.
    def needs_user?
      @needs.user
    end

    # The request headers that its rules need, in lower case.
    def needs_headers
      @needs.headers
    end

    # The names of what the application must supply for its keys and costs.
    def needs_values
      @needs.values
    end

    # The questions that may exempt it.
    def needs_answers
      @needs.answers
    end
  end

  # Whether a request may pass, and what its response is to have. Frozen.
  class Admission
    include Handle

    OUTCOMES = NAMES.call(TidegateFfi::AdmissionOutcome)
    private_constant :OUTCOMES

    # What became of the request: :allowed, :refused, :unavailable (the store failed, and a rule denies then), :no_identity,
    # :exempt, :unlimited or :invalid; in a shadow route what would have become of it.
    attr_reader :outcome
    # The name of its route; nil if it has none.
    attr_reader :route
    # The status to answer with: 429, 503 or 403; nil where the request may pass.
    attr_reader :status
    # The fields that the response is to have, of a refusal or of what the application answers: a Hash.
    attr_reader :headers
    # The body of a refusal, whose type is among the headers; nil where the request may pass.
    attr_reader :body
    # @api private
    attr_reader :charge

    # @api private
    def initialize(allowed:, outcome:, is_shadow:, route:, status:, headers:, body:, may_refund:, charge:)
      @allowed = allowed
      @outcome = OUTCOMES.fetch(outcome)
      @is_shadow = is_shadow
      @route = route.freeze
      @status = status
      @headers = headers.to_h { |field| [field.name.freeze, field.value.freeze] }.freeze
      @body = body.freeze
      @may_refund = may_refund
      @charge = charge
      freeze
    end

    # Whether the request may pass.
    def allowed?
      @allowed
    end

    # Whether its route only reports.
    def shadow?
      @is_shadow
    end

    # A Decision for each key, those of an admission before this one first.
    def decisions
      Calls.call { @charge.decisions }
    end

    # Gives the charge back where the route's `refund_status` has the response's status. Once: later calls do nothing. What
    # cannot be given back is counted and logged.
    #
    # @param wait [Boolean] whether to wait until it is known
    # @return [Boolean, nil] whether anything was given back; nil where that was not waited for
    def settle(status, wait: false)
      status = Arguments.whole(status, "status").clamp(-2**31, 2**31 - 1)
      if !@may_refund
        wait ? false : nil
      elsif wait
        Calls.wait { @charge.settle_and_wait(status) }
      else
        Calls.call { @charge.settle(status) }
        nil
      end
    end

    # Gives back all that was charged, in the background: for a request that nobody answers any more. Once.
    def undo
      Calls.call { @charge.undo }
      nil
    end

    def inspect
      "#<#{self.class} #{@outcome}, route: #{@route.inspect}, status: #{@status.inspect}>"
    end
  end
end

# What is generated reads answers into it.
module TidegateFfi
  remove_const(:Admission)
  Admission = Tidegate::Admission
end
