# Forms of values and blocks in Terraform's language.
terraform {
  required_version = ">= 1.5" // a comment
}

/* over
   two lines */
locals { one_line = 5 }

resource "kafka_quota" "literal" {
  entity_name = "CN=a \"b\" \\ c, OU=\u00e9"
  entity_type = "user"
  config = {
    "producer_byte_rate" = 5242880
    consumer_byte_rate   = 2.5
    "request_percentage" : 100,
  }
  tags = ["a", "b",
    "c", # and a comment
  ]
  empty_list = []
  empty_map  = {}
  yes        = true
  nested     = [{ a = [1, 2] }, { "b" = "x" }]
}

resource kafka_quota_composite bare {
  entity {
    type = "user"
  }
  entity {
    type = "client-id"
    name = "etl-1"
  }
  config = { producer_byte_rate = 1 }
}
