"""Who is who, and what is kept between exchanges: identity, the ledger, the timeline merged from request and ledger."""
